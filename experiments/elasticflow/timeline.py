"""Figure 7: devices held, and jobs submitted, admitted and in time, over the first two days of the testbed trace."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from experiments.elasticflow.deadlines import list_unfinished
from experiments.elasticflow.scenes import find_scene
from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.simulations import Outcome, Plan
from experiments.steps import average_over, value_at
from experiments.styles import POLICY_LINES, Sheet
from experiments.tables import Cell, make_table

POLICIES = ("edf", "elasticflow", "springtide")
HOURS = 48
CELL_S = 900.0
COLUMNS = ("policy", "hour", "devices_held", "submitted", "admitted", "deadlines_met")


def measure(context: FigureContext) -> Findings:
    """Quarter hours of the first two days, by policy."""
    scene, notes = find_scene(context, "195job", "16x8:a100")
    outcomes = context.simulate([Plan(scene, policy, record=True) for policy in POLICIES])
    finished = [outcome for outcome in outcomes if outcome.report is not None]
    table = make_table(COLUMNS, [row for outcome in finished for row in sample(outcome)], labels=2)
    notes = (*notes, f"{scene.name} on 16×8 A100, simulated; the paper shows 48 h of its testbed run.")
    lines = tuple(sum_up(outcome, [row for row in table.rows if row[0] == outcome.plan.policy]) for outcome in finished)
    return Findings(table, lines, notes, unfinished=list_unfinished(outcomes))


def sample(outcome: Outcome) -> list[tuple[Cell, ...]]:
    """One row per cell of time since the first submission."""
    steps = outcome.steps
    start_s = steps["submitted"][0][0]
    edges = [start_s + cell * CELL_S for cell in range(int(HOURS * 3600 / CELL_S) + 1)]
    counts = [[value_at(steps[name], edge) for name in ("submitted", "admitted", "met")] for edge in edges[1:]]
    held = [average_over(steps["held"], *cell) for cell in pairwise(edges)]
    hours = [(edge - start_s) / 3600 for edge in edges]
    return [(outcome.plan.policy, hour, mean, *three) for hour, mean, three in zip(hours, held, counts, strict=False)]


def sum_up(outcome: Outcome, rows: Sequence[Sequence[Any]]) -> Line:
    """The mean use of the cluster in these two days."""
    mean = sum(row[2] for row in rows) / len(rows)
    counts = f"{rows[-1][3]} submitted, {rows[-1][4]} admitted, {rows[-1][5]} in time after {HOURS} h"
    what = f"{outcome.plan.policy}, mean devices held of 128"
    return Line(what, None, mean, f"The paper prints no numbers for this figure; {counts}.")


def draw(findings: Findings) -> Any:
    """Devices above, jobs below."""
    rows = list(findings.table.records())
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    sheet = Sheet(2, 1, 4.6, sharex=True)
    above, below = sheet.panels
    for number, policy in enumerate(policies):
        mine = [row for row in rows if row["policy"] == policy]
        hours = [row["hour"] for row in mine]
        style = {"color": POLICY_LINES[policy][0], "drawstyle": "steps-post"}
        above.plot(hours, [row["devices_held"] for row in mine], label=policy, **style)
        if number == 0:
            below.plot(hours, [row["submitted"] for row in mine], color="0.6", label="submitted")
        below.plot(hours, [row["admitted"] for row in mine], linestyle="--", label=f"{policy}, admitted", **style)
        below.plot(hours, [row["deadlines_met"] for row in mine], label=f"{policy}, finished in time", **style)
    above.set_ylabel("devices held (of 128)")
    above.set_ylim(0, 132)
    above.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    below.set_ylabel("jobs so far")
    below.set_xlabel("hours since the first submission")
    below.set_xlim(0, HOURS)
    below.set_ylim(bottom=0)
    below.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return sheet.finish(findings.notes)
