"""Figures 6a and 6b: the paper's testbed runs, here by simulation."""

from collections.abc import Mapping

from experiments.elasticflow.deadlines import BASELINES, NEWER, compare, draw, list_unfinished, tabulate
from experiments.elasticflow.published import FIGURE_6A, FIGURE_6B
from experiments.elasticflow.scenes import find_scene
from experiments.figure_context import FigureContext
from experiments.findings import Findings
from experiments.simulations import Plan, Scene

__all__ = ["draw", "measure_large", "measure_small"]

TRACE = "195job"
FIRST = 25
SIMULATED = "The paper ran its testbed; these are simulated runs."


def measure_small(context: FigureContext) -> Findings:
    """The first 25 jobs of the testbed trace on 32 devices."""
    scene, notes = find_scene(context, TRACE, "4x8:a100", FIRST)
    notes = (*notes, f"The first {FIRST} jobs of {scene.name}; which 25 the paper took is not public.", SIMULATED)
    return run_policies(context, scene, FIGURE_6A, notes, "Simulated, and not the same 25 jobs.")


def measure_large(context: FigureContext) -> Findings:
    """The testbed trace on 128 devices."""
    scene, notes = find_scene(context, TRACE, "16x8:a100")
    return run_policies(context, scene, FIGURE_6B, (*notes, SIMULATED), "Simulated instead of run.")


def run_policies(
    context: FigureContext, scene: Scene, published: Mapping[str, float], notes: tuple[str, ...], remark: str = ""
) -> Findings:
    """Every policy on a scene, beside what was published."""
    outcomes = context.simulate([Plan(scene, policy) for policy in (*BASELINES, *NEWER)])
    values = {(scene.name, scene.cluster, policy): value for policy, value in published.items()}
    table = tabulate(outcomes, values)
    return Findings(table, compare(table, remark=remark), notes, unfinished=list_unfinished(outcomes))
