"""Deadlines met by policy, the form that most of ElasticFlow's figures have: runs into a table, a table into panels."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.findings import Findings, Line
from experiments.simulations import Outcome, count_deadlines, count_met
from experiments.styles import BLACK, Sheet, find_colour, label_bars
from experiments.tables import Cell, Table, make_table

BASELINES = ("edf", "gandiva", "tiresias", "themis", "chronus", "pollux")
NEWER = ("elasticflow", "springtide", "springtide-flexible")
COLUMNS = (
    "trace",
    "cluster",
    "policy",
    "jobs",
    "deadline_jobs",
    "deadlines_met",
    "admitted",
    "late_admitted",
    "dsr",
    "dsr_published",
    "dsr_alone_bound",
    "state",
    "cpu_s",
)
# Why ours and the published value differ, in one sentence each; docs/baselines.md has the evidence.
REASONS = {
    "edf": "No share beyond the throughput peak, and late jobs give way; with the published rules we meet as many "
    "deadlines to the job (docs/baselines.md).",
    "gandiva": "Servers are not tied to one job size here, so none stands idle beside a queue.",
    "tiresias": "The same rule; what differs is the cost of a change, charged to every policy alike here.",
    "themis": "Isolated speed instead of isolated fraction in its fairness, a defect of the published code.",
    "chronus": "Exact run times instead of 1.1 times too long, and free devices are used at once.",
    "pollux": "Fixed batch and exact shares instead of a genetic search.",
    "elasticflow": "Each newcomer is tested alone and pauses are planned; the published code declines whole batches.",
    "edf-admission": "Pauses are planned, and an admitted job that slipped does not close the door.",
    "edf-elastic": "Jobs that cannot be in time are planned behind those that can.",
}
SAME = 0.005
EQUAL = "The same."


def tabulate(outcomes: Sequence[Outcome], published: Mapping[tuple[str, str, str], float]) -> Table:
    """One row per run; `published` is by (trace, cluster, policy)."""
    rows: list[tuple[Cell, ...]] = []
    for outcome in outcomes:
        scene, report = outcome.plan.scene, outcome.report
        labels = (scene.name, scene.cluster, outcome.plan.policy)
        value = published.get(labels)
        if report is None:
            rows.append((*labels, None, None, None, None, None, None, value, None, "not finished", None))
            continue
        rows.append(
            (
                *labels,
                report["jobs"],
                count_deadlines(report),
                count_met(report),
                report["admitted"],
                report["late_admitted"],
                outcome.dsr,
                value,
                report["dsr_alone_bound"],
                "finished",
                report["cpu_s"],
            )
        )
    return make_table(COLUMNS, rows, labels=3, measured=["cpu_s"])


def list_unfinished(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """The runs that were stopped."""
    return tuple(outcome.plan.name for outcome in outcomes if outcome.report is None)


def compare(table: Table, policies: Sequence[str] | None = None, remark: str = "") -> tuple[Line, ...]:
    """A line of the summary for every run; `remark` goes before the reason where a published value differs."""
    lines = []
    for row in table.records():
        if policies is None or row["policy"] in policies:
            what = f"{row['policy']}, deadlines met, {row['trace']} on {row['cluster']}"
            reason = explain(row)
            differs = row["dsr_published"] is not None and reason != EQUAL
            lines.append(
                Line(what, row["dsr_published"], row["dsr"], f"{remark} {reason}".strip() if differs else reason)
            )
    return tuple(lines)


def explain(row: Mapping[str, Any]) -> str:
    """One sentence on a run and its published value."""
    if row["dsr"] is None:
        return "Stopped after five minutes."
    if row["dsr_published"] is None:
        late = "no promise broken" if row["late_admitted"] == 0 else f"{row['late_admitted']} jobs late"
        return f"Not in the paper; {late}; the bound with each job alone is {row['dsr_alone_bound']:.3f}."
    if abs(row["dsr"] - row["dsr_published"]) < SAME:
        return EQUAL
    if row["dsr"] < row["dsr_published"] and row["dsr"] > row["dsr_alone_bound"] - SAME:
        return "At the bound: no scheduler could meet more deadlines of these jobs."
    return REASONS.get(str(row["policy"]), "")


def draw(findings: Findings) -> Any:
    """A panel per trace and cluster: a bar per policy, the published value and the bound marked."""
    rows = list(findings.table.records())
    places = list(dict.fromkeys((row["trace"], row["cluster"]) for row in rows))
    columns = min(4, len(places))
    height = -(-len(places) // columns)
    bars = max(sum((row["trace"], row["cluster"]) == place for row in rows) for place in places)
    sheet = Sheet(height, columns, 0.9 + height * (0.55 + 0.19 * bars), sharey=len(places) > 1, sharex=True)
    for panel, place in zip(sheet.panels, places, strict=False):
        draw_panel(panel, [row for row in rows if (row["trace"], row["cluster"]) == place])
        panel.set_title(describe_place(*place, columns), loc="left")
    for panel in sheet.panels[max(0, len(places) - columns) : len(places)]:
        panel.set_xlabel("share of deadlines met")
        panel.tick_params(labelbottom=True)  # also where no panel stands below
    sheet.legend(max(sheet.panels, key=lambda panel: len(panel.get_legend_handles_labels()[1])))
    return sheet.finish(findings.notes)


def describe_place(trace: str, cluster: str, columns: int) -> str:
    """A panel's heading: one line where there is room, else two."""
    return f"{trace}{', ' if columns < 3 else chr(10)}{cluster.replace(':', ' ').upper().replace('X', '×')}"


def draw_panel(panel: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """The bars of one trace, top to bottom in the order of the table."""
    places = range(len(rows))
    colours = [find_colour(str(row["policy"])) for row in rows]
    panel.barh(places, [row["dsr"] or 0.0 for row in rows], color=colours, height=0.68, label="ours")
    label_bars(panel, [row["dsr"] for row in rows], at=1.03)
    marked = [(row["dsr_published"], place) for place, row in zip(places, rows, strict=True) if row["dsr_published"]]
    if marked:
        panel.plot(*zip(*marked, strict=True), "|", color=BLACK, markersize=9, markeredgewidth=1.8, label="published")
    bound = next((row["dsr_alone_bound"] for row in rows if row["dsr_alone_bound"] is not None), None)
    if bound is not None:
        panel.axvline(bound, color="0.35", linestyle=":", linewidth=1.1, label="bound: every job alone on the cluster")
    panel.set_yticks(places, [row["policy"] for row in rows])
    panel.set_xlim(0, 1.2)
    panel.set_xticks([0, 0.5, 1.0], labels=["0", "0.5", "1"])
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.grid(axis="y", visible=False)
