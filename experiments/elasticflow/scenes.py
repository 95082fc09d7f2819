"""The scenes of ElasticFlow's figures: a public trace where it is at hand, else one drawn by the paper's generator."""

from experiments.figure_context import FigureContext
from experiments.simulations import Scene
from springtide.simulator.workloads import parse_workload

# What stands in for a trace that is not at hand: as many jobs over the same span.
STAND_INS = {"195job": "jobs=195,gap=4340,seed=0", "elasticVpollux_e": "jobs=195,gap=4500,seed=0"}


def find_scene(
    context: FigureContext, name: str, cluster: str, first: int | None = None
) -> tuple[Scene, tuple[str, ...]]:
    """A trace by name on a cluster, with what must be said of it."""
    path = context.sources.find_trace(name)
    if path is not None:
        return Scene(cluster, path, first=first, profiles=context.sources.profiles), ()
    return draw_scene(context, STAND_INS[name], cluster, first)


def draw_scene(
    context: FigureContext, workload: str, cluster: str, first: int | None = None
) -> tuple[Scene, tuple[str, ...]]:
    """A synthetic workload on a cluster, with what must be said of it."""
    scene = Scene(cluster, synthetic=workload, first=first, profiles=context.sources.profiles)
    speeds = "" if context.sources.profiles else ", packaged speeds (estimates)"
    drawn = parse_workload(workload).describe()
    return scene, (f"Synthetic trace by the paper's generator ({drawn}){speeds}.",)
