"""What spot machines and mixes of two GPU types save, by how tight the deadline is."""

from collections.abc import Sequence
from typing import Any

from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.srifty.offers import MOST_NODES, digest_prices, open_market
from experiments.srifty.points import join_types, load_a100, load_t4
from experiments.styles import CYCLE, MARKERS, Sheet
from experiments.tables import make_table
from springtide.cloud.planner import search_plans
from springtide.cloud.plans import Limits

MODEL, BATCH, STEPS = "resnet50", 256, 100_000
SLACKS = (1.3, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
# (mixes, spot), by the name it is shown under
ALLOWED = {
    "one type, on demand": (False, False),
    "two types, on demand": (True, False),
    "one type, spot": (False, True),
    "two types, spot": (True, True),
}
COLUMNS = ("allowed", "deadline_h", "machines", "hours", "usd", "chance")


def measure(context: FigureContext) -> Findings:
    """The cheapest plan at each deadline under each permission."""
    tables = (load_a100(context), load_t4(context))
    slacks = SLACKS[2::3] if context.quick else SLACKS
    parts = [[table.digest for table in tables], digest_prices(), slacks]
    rows = context.remember(__name__, parts, lambda: try_all(context, slacks))
    notes = tuple(dict.fromkeys(note for table in tables for note in table.notes))
    said = (
        f"{MODEL}, {STEPS:,} steps of {BATCH}, AWS us-east-1, packaged prices. Spot at 0.1 revocations per node-hour."
    )
    mixed = "No public measurement mixes GPU types: mixed steps are predicted from each type alone."
    return Findings(make_table(COLUMNS, rows, labels=2), compare(rows), (*notes, said, mixed))


def try_all(context: FigureContext, slacks: Sequence[float]) -> list[tuple[Any, ...]]:
    """The rows of the table."""
    market = open_market(join_types((load_a100(context), load_t4(context))), MODEL, BATCH, STEPS)
    fastest_h = market.find_fastest().time_s.value / 3600
    rows: list[tuple[Any, ...]] = []
    for name, (mixes, spot) in ALLOWED.items():
        for slack in slacks:
            deadline_h = slack * fastest_h
            limits = Limits(deadline_s=deadline_h * 3600, spot=spot, mixes=mixes, most_nodes=MOST_NODES)
            best = search_plans(market.catalog, market.judged, market.work, limits).best[:1]
            if best:
                plan = best[0]
                rows.append((name, deadline_h, plan.name, plan.time_s.value / 3600, plan.cost_usd.value, plan.chance))
    return rows


def compare(rows: Sequence[Sequence[Any]]) -> tuple[Line, ...]:
    """The mean saving of each permission over one type on demand, at the deadlines both can meet."""
    first, *others = ALLOWED
    base = {row[1]: row[4] for row in rows if row[0] == first}
    lines = []
    for name in others:
        shares = [1 - row[4] / base[row[1]] for row in rows if row[0] == name and row[1] in base]
        mean, most = sum(shares) / len(shares), max(shares)
        remark = f"At most {most:.0%}; the paper says 'significant' and prints no number for this."
        if most < 0.005:
            remark += " Of the types measured, A100 and T4, the slow one never pays beside the fast one."
        lines.append(Line(f"saved by {name}, mean over deadlines", None, f"{mean:.0%}", remark))
    return tuple(lines)


def draw(findings: Findings) -> Any:
    """Cost by deadline, a line per permission."""
    rows = list(findings.table.records())
    sheet = Sheet(1, 1, 3.0, width_in=5.2)
    panel = sheet.panels[0]
    for number, name in enumerate(ALLOWED):
        mine = [row for row in rows if row["allowed"] == name]
        # One type and two often cost the same: broad below, dashed above.
        style: dict[str, Any] = {"color": CYCLE[number], "marker": MARKERS[number], "label": name}
        style |= {"linewidth": 1.0, "linestyle": "--"} if ALLOWED[name][0] else {"linewidth": 3.0}
        panel.plot([row["deadline_h"] for row in mine], [row["usd"] for row in mine], **style)
    panel.set_xlabel("deadline (h)")
    panel.set_ylabel("cost of the cheapest plan (USD)")
    panel.set_ylim(bottom=0)
    sheet.legend(panel, 2)
    return sheet.finish(findings.notes)
