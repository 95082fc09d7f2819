"""Cost and throughput of the recommended machines beside those that people usually choose."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.srifty.offers import MOST_NODES, Market, choose_usual, digest_prices, open_market
from experiments.srifty.points import join_types, load_a100, load_t4
from experiments.styles import BLUE, GREY, SKY, Sheet, set_log_ticks
from experiments.tables import make_table
from springtide.cloud.planner import search_plans
from springtide.cloud.plans import Limits, RentalPlan

# model -> (global batch, steps): a day or so on one small machine
JOBS = {"resnet50": (256, 100_000), "bert": (128, 60_000), "deepspeech2": (64, 60_000)}
# deadline over the fastest plan's time, by what it is called
SLACKS = {"tight": 3.0, "relaxed": 30.0}
COLOURS = {"recommended, tight": BLUE, "recommended, relaxed": SKY}
COLUMNS = (
    "model",
    "choice",
    "machines",
    "devices",
    "usd_per_h",
    "hours",
    "usd",
    "samples_per_s",
    "tight_deadline_h",
    "relaxed_deadline_h",
)


def measure(context: FigureContext) -> Findings:
    """Every choice for every model."""
    tables = (load_a100(context), load_t4(context))
    parts = [[table.digest for table in tables], digest_prices(), JOBS, SLACKS]
    rows = context.remember(__name__, parts, lambda: try_models(context))
    notes = dict.fromkeys(note for table in tables for note in table.notes)
    said = (
        f"AWS us-east-1, on demand, packaged prices; deadlines {SLACKS['tight']:g} and {SLACKS['relaxed']:g} times the "
        "fastest. Planned from nine probes per GPU type, judged by a fit on everything measured.",
    )
    return Findings(make_table(COLUMNS, rows, labels=3), compare(rows), (*notes, *said))


def try_models(context: FigureContext) -> list[tuple[Any, ...]]:
    """The rows of the table."""
    points = join_types((load_a100(context), load_t4(context)))
    markets = (open_market(points, model, batch, steps) for model, (batch, steps) in JOBS.items())
    return [row for market in markets for row in try_model(market)]


def try_model(market: Market) -> list[tuple[Any, ...]]:
    """The recommended machines for one model, and the usual ones."""
    fastest_h = market.find_fastest().time_s.value / 3600
    deadlines = [slack * fastest_h for slack in SLACKS.values()]
    choices = {}
    for name, deadline_h in zip(SLACKS, deadlines, strict=True):
        best = recommend(market, deadline_h)
        choices[f"recommended, {name}"] = best.parts, best.usd_per_h
    for name, part in choose_usual(market).items():
        choices[name] = (part,), part.nodes * (part.machine.on_demand_usd_per_h or 0.0)
    rows = []
    for name, (parts, usd_per_h) in choices.items():
        found = market.judge(parts, usd_per_h)
        words = " + ".join(f"{part.nodes} x {part.machine.instance_type}" for part in parts)
        numbers = (sum(part.devices for part in parts), usd_per_h, found.hours, found.usd, found.samples_per_s)
        rows.append((market.work.model, name, words, *numbers, *deadlines))
    return rows


def recommend(market: Market, deadline_h: float) -> RentalPlan:
    """The cheapest plan within a deadline, as guessed from the probes."""
    limits = Limits(deadline_s=deadline_h * 3600, most_nodes=MOST_NODES, mixes=False)
    return search_plans(market.catalog, market.guessed, market.work, limits).best[0]


def compare(rows: Sequence[Sequence[Any]]) -> tuple[Line, ...]:
    """How each usual choice stands to the recommendation for the tightest deadline that it meets."""
    records = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    best = {(row["model"], row["choice"]): row for row in records}
    lines = []
    for name in dict.fromkeys(row["choice"] for row in records if row["choice"] not in COLOURS):
        mine = [row for row in records if row["choice"] == name]
        met = {row["model"]: find_deadline(row) for row in mine}
        against = [(row, best[row["model"], f"recommended, {met[row['model']] or 'tight'}"]) for row in mine]
        cost = fmean(row["usd"] / other["usd"] for row, other in against)
        speed = fmean(other["samples_per_s"] / row["samples_per_s"] for row, other in against)
        missed = sum(met[row["model"]] != "tight" for row in mine)
        remark = (
            f"Its throughput is {1 / speed:.2f} of the recommended's; it misses the tight deadline for {missed} of "
            f"{len(mine)} models. The paper's 1.6 and 2 (v1, up to) are against choices it does not name."
        )
        lines.append(Line(f"cost of '{name}' over the recommended, mean", "up to 1.6", f"{cost:.2f}", remark))
    return tuple(lines)


def find_deadline(row: dict[str, Any]) -> str | None:
    """The tightest deadline that a choice meets."""
    return next((name for name in SLACKS if row["hours"] <= row[f"{name}_deadline_h"]), None)


def draw(findings: Findings) -> Any:
    """A row of panels per model: cost on the left, throughput on the right."""
    rows = list(findings.table.records())
    models = list(dict.fromkeys(row["model"] for row in rows))
    sheet = Sheet(len(models), 2, 0.7 + 1.4 * len(models))
    for number, model in enumerate(models):
        mine = [row for row in rows if row["model"] == model]
        left, right = sheet.panels[2 * number], sheet.panels[2 * number + 1]
        colours = [COLOURS.get(row["choice"], GREY) for row in mine]
        left.scatter([row["usd"] for row in mine], range(len(mine)), c=colours, s=22, zorder=3)
        left.set_xscale("log")
        set_log_ticks(left.xaxis, (10, 100, 1000))
        left.set_xlim(9, 300_000)
        right.barh(range(len(mine)), [row["samples_per_s"] for row in mine], color=colours, height=0.68)
        right.set_xlim(0, 1.6 * max(row["samples_per_s"] for row in mine))
        for panel in (left, right):
            panel.set_ylim(len(mine) - 0.5, -0.5)
            panel.grid(axis="y", visible=False)
        for place, row in enumerate(mine):
            kept = {"tight": "in time", "relaxed": "late if tight", None: "late"}[find_deadline(row)]
            left.text(
                row["usd"], place, f"   ${row['usd']:.0f}, {row['hours']:.1f} h, {kept}", va="center", fontsize=6.5
            )
            right.text(row["samples_per_s"], place, f" {row['machines']}", va="center", fontsize=6.5)
        left.set_yticks(range(len(mine)), [row["choice"] for row in mine])
        right.set_yticks(range(len(mine)), [""] * len(mine))
        first = mine[0]
        left.set_title(
            f"{model}: {first['tight_deadline_h']:.1f} h or {first['relaxed_deadline_h']:.0f} h allowed", loc="left"
        )
    sheet.panels[-2].set_xlabel("cost of the job (USD), logarithmic")
    sheet.panels[-1].set_xlabel("samples per second")
    return sheet.finish(findings.notes)
