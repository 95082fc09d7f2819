"""Figure 11: what switching between logical workers adds to a mini-batch."""

from statistics import fmean
from typing import Any

from experiments.easyscale.published import FIGURE_11
from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.styles import BLUE, PALE, Sheet
from experiments.tables import make_table

EXAMPLES = ("cnn", "recommender", "resnet", "gpt")
WORKERS = 8
NOTES = ("Ours: CPU time of our examples, eight logical workers in one process. Published: one V100.",)


def measure(context: FigureContext) -> Findings:
    """The share of a mini-batch that switching takes, by example."""
    examples, steps = (EXAMPLES[:2], 6) if context.quick else (EXAMPLES, 12)
    rows = []
    for example in examples:
        order = {"what": "switching", "example": example, "workers": WORKERS, "steps": steps}
        found = context.measure("experiments.overheads", order)
        rest_s = found["minibatch_s"] - found["switch_s"]
        rows.append((example, WORKERS, rest_s, found["minibatch_s"], found["switch_s"] / rest_s))
    columns = ("example", "logical_workers", "without_s", "with_s", "overhead")
    table = make_table(columns, rows, labels=2, measured=columns[2:])
    mean, most = fmean(row[-1] for row in rows), max(row[-1] for row in rows)
    remark = "Small models on a CPU, whose mini-batches take milliseconds: the same switch is a larger part of them."
    published = [on / off - 1 for off, on in FIGURE_11.values()]
    lines = (
        Line("mean overhead of context switches", f"{fmean(published):.2%}", f"{mean:.2%}", remark),
        Line("largest overhead of context switches", f"{max(published):.2%}", f"{most:.2%}", remark),
    )
    return Findings(table, lines, NOTES)


def draw(findings: Findings) -> Any:
    """A bar per model, ours above the paper's."""
    rows = [(row["example"], row["overhead"], BLUE) for row in findings.table.records()]
    rows += [(f"{name} (published)", on / off - 1, PALE) for name, (off, on) in FIGURE_11.items()]
    sheet = Sheet(1, 1, 0.8 + 0.2 * len(rows))
    panel = sheet.panels[0]
    panel.barh(
        range(len(rows)), [100 * value for _, value, _ in rows], color=[colour for *_, colour in rows], height=0.7
    )
    for place, (_, value, _) in enumerate(rows):
        panel.text(max(0.0, 100 * value) + 0.04, place, f"{value:.2%}", va="center", fontsize=6.5)
    panel.axvline(0, color="0.3", linewidth=0.8)
    panel.set_yticks(range(len(rows)), [name for name, *_ in rows])
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlabel("time added by context switches (% of a mini-batch)")
    panel.margins(x=0.12)
    panel.grid(axis="y", visible=False)
    return sheet.finish(findings.notes)
