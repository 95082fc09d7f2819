"""Figures 8a and 8b: every policy on the trace that Pollux can run, and on every trace at hand."""

from collections.abc import Sequence
from statistics import fmean

from experiments.elasticflow.deadlines import BASELINES, NEWER, compare, draw, list_unfinished, tabulate
from experiments.elasticflow.published import FIGURE_8A, FIGURE_8B
from experiments.elasticflow.scenes import draw_scene, find_scene
from experiments.elasticflow.testbed import run_policies
from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.simulations import Plan, Scene, load_scene
from experiments.sources import CLUSTERS, find_traces
from experiments.tables import Table
from springtide.errors import InputError

__all__ = ["draw", "measure_all", "measure_pollux"]

POLLUX_TRACE = "elasticVpollux_e"
QUICK_JOBS = 200
# Stand-ins where there is no trace: lightly and heavily loaded.
SYNTHETIC = (("jobs=400,gap=1500,seed=1", "8x8:a100"), ("jobs=400,gap=600,seed=2", "16x8:a100"))


def measure_pollux(context: FigureContext) -> Findings:
    """Figure 8a: the T4 trace, on which Pollux was run as well."""
    scene, notes = find_scene(context, POLLUX_TRACE, CLUSTERS[POLLUX_TRACE])
    published = {policy: value.dsr for policy, value in FIGURE_8A.items()}
    return run_policies(context, scene, published, notes)


def measure_all(context: FigureContext) -> Findings:
    """Figure 8b: every trace in the traces folder at its published size."""
    scenes, notes, problems = list_scenes(context)
    policies = (*BASELINES, *NEWER)
    outcomes = context.simulate([Plan(scene, policy) for scene in scenes for policy in policies])
    values = {
        (trace, CLUSTERS[trace], policy): value.dsr
        for trace, entries in FIGURE_8B.items()
        for policy, value in entries.items()
    } | {(POLLUX_TRACE, CLUSTERS[POLLUX_TRACE], policy): value.dsr for policy, value in FIGURE_8A.items()}
    table = tabulate(outcomes, {} if context.quick else values)
    lines = (*compare(table, ("elasticflow", "springtide")), *average(table, policies))
    return Findings(table, lines, notes, unfinished=list_unfinished(outcomes), problems=problems)


def list_scenes(context: FigureContext) -> tuple[list[Scene], tuple[str, ...], tuple[str, ...]]:
    """The scenes to run, what must be said of them, and which files could not be used."""
    found = find_traces(context.sources)
    first = QUICK_JOBS if context.quick else None
    problems = list(found.problems)
    scenes = []
    for path, cluster in found.traces:
        scene = Scene(cluster, path, first=first, profiles=context.sources.profiles)
        try:
            load_scene(scene)
            scenes.append(scene)
        except InputError as error:
            problems.append(str(error))
    notes: tuple[str, ...] = (f"Quick: the first {first} jobs of each trace.",) if first and scenes else ()
    if not scenes:
        drawn = [draw_scene(context, workload, cluster, first) for workload, cluster in SYNTHETIC]
        scenes, notes = [scene for scene, _ in drawn], tuple(note for _, said in drawn for note in said)
    return scenes, notes, tuple(problems)


def average(table: Table, policies: Sequence[str]) -> tuple[Line, ...]:
    """The mean of each policy over the traces that have a published value."""
    lines = []
    for policy in policies:
        rows = [
            row for row in table.records() if row["policy"] == policy and None not in (row["dsr"], row["dsr_published"])
        ]
        if rows:
            means = fmean(row["dsr_published"] for row in rows), fmean(row["dsr"] for row in rows)
            lines.append(
                Line(f"{policy}, mean of {len(rows)} traces", *means, "Mean of the rows with a published value.")
            )
    return tuple(lines)
