"""Figures 14 and 15: completion time, makespan and allocation on 64 GPUs of three types.

The published YARN-CS runs one job at a time; it stands here as it is, and beside it baselines that anyone would use.
Every policy is charged the same for a change of devices.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from experiments.easyscale.published import FIGURE_14, FIGURE_15, FIGURE_15_MEANS
from experiments.easyscale.workload import find_scene
from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.simulations import Outcome, Plan
from experiments.steps import average_over
from experiments.styles import BLACK, BLUE, GREEN, GREY, ORANGE, PALE, Sheet, find_colour, label_bars
from experiments.tables import Cell, make_table

POLICIES = ("yarn-cs", "fifo", "fifo-backfill", "srtf", "easyscale-homo", "easyscale-heter", "springtide")
ELASTIC = ("easyscale-homo", "easyscale-heter", "springtide")
COSTS_S = (20, 60)
SCALE = 1.38  # fitted to the published YARN-CS (specification, section 4)
CELL_S = 60.0
DEVICES = 64
COLUMNS = (
    "policy",
    "change_cost_s",
    "jobs",
    "avg_jct_s",
    "makespan_s",
    "rescales",
    "jct_published_s",
    "makespan_published_s",
)


def measure_times(context: FigureContext) -> Findings:
    """Every policy with a change of devices at 20 s, which the published code charges at a start only, and at 60 s."""
    scenes = {cost: find_scene(context, f"constant:{cost}", SCALE) for cost in COSTS_S}
    plans = [Plan(scene, policy) for scene, _ in scenes.values() for policy in POLICIES]
    outcomes = context.simulate(plans)
    keys = [(policy, cost) for cost in COSTS_S for policy in POLICIES]
    rows = [tabulate(*key, outcome) for key, outcome in zip(keys, outcomes, strict=True)]
    notes = (*scenes[COSTS_S[0]][1], *describe(context))
    unfinished = tuple(outcome.plan.name for outcome in outcomes if outcome.report is None)
    return Findings(make_table(COLUMNS, rows, labels=2), compare(rows), notes, unfinished=unfinished)


def describe(context: FigureContext) -> tuple[str, ...]:
    """What must be said of every run."""
    return (f"32 V100, 16 P100, 16 T4, simulated; step times rebuilt from the paper's figures, times {SCALE}.",)


def tabulate(policy: str, cost: int, outcome: Outcome) -> tuple[Cell, ...]:
    """One run beside what was published; these jobs have no deadline."""
    published = FIGURE_14.get(policy, (None, None))
    report = outcome.report
    if report is None:
        return policy, cost, None, None, None, None, *published
    jct_s = report["avg_jct_best_effort_s"]
    return policy, cost, report["jobs"], jct_s, report["makespan_s"], report["rescales"], *published


def compare(rows: Sequence[Sequence[Any]]) -> tuple[Line, ...]:
    """Completion time and makespan at 20 s, and the gain over the serial and the honest baseline."""
    first = {row[0]: row for row in rows if row[1] == COSTS_S[0] and row[3] is not None}
    remark = "Its throughput logs are not public; step times are rebuilt, and every change of devices is charged."
    lines = [
        Line(f"{policy}, {what}", first[policy][5 + place], first[policy][2 + place], remark, "s")
        for policy in FIGURE_14
        if policy in first
        for place, what in ((1, "mean completion time"), (2, "makespan"))
    ]
    for policy in ELASTIC:
        for other in ("yarn-cs", "fifo-backfill", "srtf"):
            if policy in first and other in first:
                published = FIGURE_14[other][0] / FIGURE_14[policy][0] if {policy, other} <= set(FIGURE_14) else None
                serial = "YARN-CS there runs one job at a time." if other == "yarn-cs" else "Not in the paper."
                lines.append(
                    Line(
                        f"completion time, {other} over {policy}", published, first[other][3] / first[policy][3], serial
                    )
                )
    return tuple(lines)


def draw_times(findings: Findings) -> Any:
    """Completion time and makespan, a bar per policy; the dearer change as a dot."""
    rows = list(findings.table.records())
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    sheet = Sheet(1, 2, 2.9, sharey=True)
    for panel, column, heading in zip(
        sheet.panels, ("avg_jct_s", "makespan_s"), ("mean completion time (h)", "makespan (h)"), strict=True
    ):
        cheap, dear = ([r for r in rows if r["change_cost_s"] == cost] for cost in COSTS_S)
        values = [None if row[column] is None else row[column] / 3600 for row in cheap]
        panel.barh(
            range(len(policies)),
            [value or 0.0 for value in values],
            color=[find_colour(policy) if policy in ELASTIC else GREY for policy in policies],
            height=0.68,
            label=f"ours, {COSTS_S[0]} s per change",
        )
        more = [(row[column] / 3600, place) for place, row in enumerate(dear) if row[column] is not None]
        panel.plot(*zip(*more, strict=True), "o", color=PALE, markeredgecolor=BLACK, label=f"ours, {COSTS_S[1]} s")
        name = "jct_published_s" if column == "avg_jct_s" else "makespan_published_s"
        known = [(row[name] / 3600, place) for place, row in enumerate(cheap) if row[name] is not None]
        panel.plot(*zip(*known, strict=True), "|", color=BLACK, markersize=9, markeredgewidth=1.8, label="published")
        most = max(value for value, _ in (*known, *more))
        label_bars(panel, values, 1.05 * most)
        panel.set_xlim(0, 1.25 * most)
        panel.set_yticks(range(len(policies)), policies)
        panel.set_ylim(len(policies) - 0.5, -0.5)
        panel.set_xlabel(heading)
        panel.grid(axis="y", visible=False)
    sheet.legend(sheet.panels[0])
    return sheet.finish(findings.notes)


def measure_allocation(context: FigureContext) -> Findings:
    """Devices held in every minute, by the elastic policies."""
    scene, said = find_scene(context, f"constant:{COSTS_S[0]}", SCALE)
    outcomes = context.simulate([Plan(scene, policy, record=True) for policy in ELASTIC])
    rows, lines = [], []
    for outcome in outcomes:
        if outcome.report is not None:
            mine = sample(outcome)
            rows += mine
            mean = sum(row[2] for row in mine) / len(mine)
            published = FIGURE_15_MEANS.get(outcome.plan.policy)
            remark = "Over its own makespan; a policy that ends sooner holds more."
            lines.append(Line(f"{outcome.plan.policy}, mean devices held of {DEVICES}", published, mean, remark))
    table = make_table(("policy", "minute", "devices_held"), rows, labels=2)
    unfinished = tuple(outcome.plan.name for outcome in outcomes if outcome.report is None)
    return Findings(table, tuple(lines), (*said, *describe(context)), unfinished=unfinished)


def sample(outcome: Outcome) -> list[tuple[str, int, float]]:
    """The mean devices held in each minute from the trace's beginning to the last finish."""
    held = outcome.steps["held"]
    edges = [cell * CELL_S for cell in range(int(held[-1][0] // CELL_S) + 2)]
    return [(outcome.plan.policy, minute, average_over(held, *cell)) for minute, cell in enumerate(pairwise(edges))]


def draw_allocation(findings: Findings) -> Any:
    """A line per policy, and the published samples as marks."""
    rows = list(findings.table.records())
    sheet = Sheet(1, 1, 3.0)
    panel = sheet.panels[0]
    colours = dict(zip(ELASTIC, (ORANGE, GREEN, BLUE), strict=True))
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        style = {"color": colours[policy], "drawstyle": "steps-post", "label": policy}
        panel.plot([row["minute"] for row in mine], [row["devices_held"] for row in mine], **style)
    for place, policy in enumerate(ELASTIC[:2]):
        times = [seconds / 60 for seconds in FIGURE_15]
        values = [pair[place] for pair in FIGURE_15.values()]
        panel.plot(times, values, "x", color=colours[policy], label=f"{policy}, published")
    panel.set_xlabel("minutes since the trace's beginning")
    panel.set_ylabel(f"devices held (of {DEVICES})")
    panel.set_ylim(0, DEVICES + 2)
    sheet.legend(panel, 3)
    return sheet.finish(findings.notes)
