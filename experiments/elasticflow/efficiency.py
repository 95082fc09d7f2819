"""Figure 10: deadlines met, makespan, completion time and cluster efficiency where every deadline can be met."""

from collections.abc import Callable, Mapping
from typing import Any

from experiments.elasticflow.deadlines import BASELINES, NEWER, list_unfinished
from experiments.elasticflow.published import FIGURE_10
from experiments.elasticflow.scenes import draw_scene
from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.simulations import Outcome, Plan
from experiments.styles import BLACK, Sheet, find_colour, label_bars
from experiments.tables import Cell, make_table

WORKLOAD = "jobs=100,gap=1500,seed=0,min_factor=1.5,max_factor=1.5"
CLUSTER = "16x8:a100"
# column -> (how to read it from a report, heading with its unit)
QUANTITIES: Mapping[str, tuple[Callable[[Outcome], float | None], str]] = {
    "dsr": (lambda outcome: outcome.dsr, "deadlines met (share)"),
    "makespan_h": (lambda outcome: read(outcome, "makespan_s", 3600), "makespan (h)"),
    "avg_jct_h": (lambda outcome: read(outcome, "avg_jct_s", 3600), "mean completion time (h)"),
    "cluster_efficiency": (lambda outcome: read(outcome, "cluster_efficiency", 1), "cluster efficiency (share)"),
}


def read(outcome: Outcome, key: str, divisor: float) -> float | None:
    """A number of a report in another unit."""
    if outcome.report is None or outcome.report[key] is None:
        return None
    return float(outcome.report[key]) / divisor


def measure(context: FigureContext) -> Findings:
    """Every policy on 100 jobs with deadlines of 1.5 times their duration."""
    scene, notes = draw_scene(context, WORKLOAD, CLUSTER)
    outcomes = context.simulate([Plan(scene, policy) for policy in (*BASELINES, *NEWER)])
    rows = [tabulate_one(outcome) for outcome in outcomes]
    columns = ("policy", *QUANTITIES, *(f"{name}_published" for name in QUANTITIES))
    lines = [line for row in rows for line in compare(dict(zip(columns, row, strict=True)))]
    notes = (*notes, "The paper's own 100 jobs are not public: its values are of another draw, so compare the order.")
    return Findings(make_table(columns, rows), tuple(lines), notes, unfinished=list_unfinished(outcomes))


def tabulate_one(outcome: Outcome) -> tuple[Cell, ...]:
    """A run's numbers, and the published ones."""
    known = FIGURE_10.get(outcome.plan.policy)
    published = (None,) * 4 if known is None else (known[0], known[1], known[2] / 3600, known[3])
    return (outcome.plan.policy, *(find(outcome) for find, _ in QUANTITIES.values()), *published)


def compare(row: Mapping[str, Any]) -> tuple[Line, ...]:
    """Lines on deadlines and efficiency of one policy."""
    remark = "Another draw of the same generator." if row["dsr_published"] is not None else "Not in the paper."
    return tuple(
        Line(f"{row['policy']}, {QUANTITIES[name][1]}", row[f"{name}_published"], row[name], remark)
        for name in ("dsr", "makespan_h", "cluster_efficiency")
    )


def draw(findings: Findings) -> Any:
    """Four panels with a bar per policy."""
    rows = list(findings.table.records())
    sheet = Sheet(2, 2, 4.6, sharey=True)
    for panel, (name, (_, heading)) in zip(sheet.panels, QUANTITIES.items(), strict=True):
        places = range(len(rows))
        values = [row[name] or 0.0 for row in rows]
        panel.barh(places, values, color=[find_colour(row["policy"]) for row in rows], height=0.68, label="ours")
        marked = [(row[f"{name}_published"], place) for place, row in enumerate(rows) if row[f"{name}_published"]]
        panel.plot(*zip(*marked, strict=True), "|", color=BLACK, markersize=9, markeredgewidth=1.8, label="published")
        most = max([*values, *(value for value, _ in marked)])
        label_bars(panel, [row[name] for row in rows], 1.03 * most, "{:.3g}")
        panel.set_xlim(0, 1.2 * most)
        panel.set_xlabel(heading)
        panel.set_yticks(places, [row["policy"] for row in rows])
        panel.set_ylim(len(rows) - 0.5, -0.5)
        panel.grid(axis="y", visible=False)
    sheet.legend(sheet.panels[0])
    return sheet.finish(findings.notes)
