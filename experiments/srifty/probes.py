"""The error of a prediction by the number of probes it was fitted on."""

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.form_evaluation import Rule, Split, run_trials, score_trials
from experiments.srifty.points import Measured, load_a100, load_t4
from experiments.styles import CYCLE, MARKERS, Sheet
from experiments.tables import make_table
from springtide.throughput.model.forms import DEFAULT_FORM
from springtide.throughput.tables.points import Point

# (nodes, whether each is full, which batch of those measured): what is worth a probe first, second, ...
ORDER = (
    (1, False, 0.5),
    (1, True, 1.0),
    (4, True, 1.0),
    (1, False, 1.0),
    (2, True, 0.0),
    (1, True, 0.0),
    (1, False, 0.0),
    (4, True, 0.0),
    (2, True, 1.0),
)
COUNTS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16)
# form and whether it has a prior, by the name it is shown under
FORMS = {
    f"{DEFAULT_FORM} + prior": (DEFAULT_FORM, True),
    DEFAULT_FORM: (DEFAULT_FORM, False),
    "pollux": ("pollux", False),
    "nearest": ("nearest", False),
}
NINE = 9
SPECIFIED = 0.143


def measure(context: FigureContext) -> Findings:
    """The mean error of each form at each number of probes."""
    table = load_a100(context) if context.quick else load_t4(context)
    counts = (3, 6, 9) if context.quick else COUNTS
    rows = []
    for number, count in enumerate(counts):
        context.tell(f"{count} probes", number / len(counts))
        rows += context.remember(__name__, [count, table.digest], partial(try_count, table, count))
    found = make_table(
        ("probes", "form", "rows", "mean_error", "median_error", "covered_by_90_percent"), rows, labels=2
    )
    what = "the A100 table" if context.quick else "the T4 measurements"
    notes = (
        *table.notes,
        f"On {what}; the prior is learned from the other models. The first nine probes are planned, more drawn.",
    )
    nine = {row[1]: row[3] for row in rows if row[0] == NINE}
    remark = "The specification's figure is of a larger set of models and clusters, with another form."
    line = Line("mean error from nine probes with a prior", SPECIFIED, nine[f"{DEFAULT_FORM} + prior"], remark)
    bare = Line("mean error from nine probes, Pollux' form", 0.302, nine["pollux"], remark)
    return Findings(found, (line, bare), notes)


def try_count(table: Measured, count: int) -> list[tuple[Any, ...]]:
    """Every form fitted on so many probes per model."""
    split = Split(f"{count} probes", "", divide_after(count))
    rows = []
    for name, (form, prior) in FORMS.items():
        score = score_trials(run_trials(table.points, split, form, prior))
        rows.append((count, name, score.rows, score.mape, score.median, score.coverage))
    return rows


def divide_after(count: int) -> Rule:
    """Fit the first so many probes, predict the rest."""

    def divide(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
        chosen = set(order_probes(points)[:count])
        return (
            [point for row, point in enumerate(points) if row in chosen],
            [point for row, point in enumerate(points) if row not in chosen],
        )

    return divide


def order_probes(points: Sequence[Point]) -> list[int]:
    """Rows in the order in which they are worth probing; a layout that was never measured is passed over."""
    full = max(point.layout.max_per_node for point in points)
    chosen: list[int] = []
    for nodes, whole, quantile in ORDER:
        wanted = (nodes, nodes * full if whole else nodes)
        rows = [row for row, point in enumerate(points) if (point.layout.nodes, point.layout.devices) == wanted]
        rows.sort(key=lambda row: (points[row].layout.local_batch, row))
        chosen += [rows[round(quantile * (len(rows) - 1))]] if rows else []
    rest = [row for row in range(len(points)) if row not in set(chosen)]
    Random(0).shuffle(rest)
    return [*dict.fromkeys(chosen), *rest]


def draw(findings: Findings) -> Any:
    """Mean error by form, on a logarithmic scale."""
    rows = list(findings.table.records())
    sheet = Sheet(1, 1, 3.0, width_in=4.8)
    panel = sheet.panels[0]
    for number, form in enumerate(FORMS):
        mine = [row for row in rows if row["form"] == form]
        style = {"color": CYCLE[number], "marker": MARKERS[number], "label": form}
        panel.plot([row["probes"] for row in mine], [100 * row["mean_error"] for row in mine], **style)
    panel.axhline(8, color="0.4", linewidth=0.8, linestyle=":", label="Srifty's published mean (own data)")
    panel.set_yscale("log")
    ticks = (5, 10, 20, 50, 100)
    panel.set_yticks(ticks, [str(tick) for tick in ticks], minor=False)
    panel.minorticks_off()
    panel.set_xlabel("probes per model")
    panel.set_ylabel("mean error of the step time (%)")
    sheet.legend(panel, 3)
    return sheet.finish(findings.notes)
