"""Figure 9: what admission and elastic shares bring, apart and together, on three cluster sizes."""

from experiments.elasticflow.deadlines import compare, draw, list_unfinished, tabulate
from experiments.elasticflow.published import FIGURE_9
from experiments.elasticflow.scenes import draw_scene
from experiments.figure_context import FigureContext
from experiments.findings import Findings
from experiments.simulations import Plan

__all__ = ["draw", "measure"]

POLICIES = ("edf", "edf-admission", "edf-elastic", "elasticflow", "springtide", "springtide-flexible")
NODES = (8, 16, 32)
PER_NODE = 8


def measure(context: FigureContext) -> Findings:
    """Every step from EDF to ElasticFlow, and ours, at 64, 128 and 256 devices."""
    # Quick: fewer jobs, closer together, so that the clusters are loaded; nothing published to compare with.
    workload = "jobs=200,gap=500,seed=0" if context.quick else "jobs=1000,gap=1500,seed=0"
    drawn = [draw_scene(context, workload, f"{nodes}x{PER_NODE}:a100") for nodes in NODES]
    outcomes = context.simulate([Plan(scene, policy) for scene, _ in drawn for policy in POLICIES])
    published = {
        ("synthetic", f"{devices // PER_NODE}x{PER_NODE}:a100", policy): value
        for devices, values in FIGURE_9.items()
        for policy, value in values.items()
    }
    table = tabulate(outcomes, {} if context.quick else published)
    notes = (*drawn[0][1], "The paper's own 1000 jobs are not public.")
    return Findings(
        table, compare(table, remark="Another draw of the same generator."), notes, unfinished=list_unfinished(outcomes)
    )
