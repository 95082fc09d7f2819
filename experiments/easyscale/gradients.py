"""Figure 13: a mini-batch of an ordinary logical worker and of the last, which adds up and updates, beside DDP's."""

from statistics import fmean
from typing import Any

from experiments.easyscale.published import FIGURE_13
from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.styles import BLACK, BLUE, ORANGE, Sheet
from experiments.tables import make_table

EXAMPLES = ("cnn", "recommender", "resnet", "gpt")
WORKERS = 4
NOTES = (
    "Ours: CPU time, four logical workers in one process, beside stock DDP on four. Published (pale): V100, eight "
    "workers on one GPU beside DDP on eight; its 'ordinary' is the mean of all eight.",
)
COLUMNS = ("example", "logical_workers", "ddp_s", "ordinary_s", "last_s", "ordinary_over_ddp", "last_over_ddp")


def measure(context: FigureContext) -> Findings:
    """Turns of logical workers and of stock ranks, by example."""
    examples, steps = (EXAMPLES[:2], 6) if context.quick else (EXAMPLES, 10)
    rows = []
    for example in examples:
        order = {"what": "turns", "example": example, "workers": WORKERS, "steps": steps}
        found = context.measure("experiments.overheads", order)
        seconds = found["ddp_s"], found["ordinary_s"], found["last_s"]
        rows.append((example, WORKERS, *seconds, seconds[1] / seconds[0], seconds[2] / seconds[0]))
    table = make_table(COLUMNS, rows, labels=2, measured=COLUMNS[2:])
    published = [(worker / ddp, last / ddp) for ddp, worker, last in FIGURE_13.values()]
    remark = "gloo on one machine instead of NCCL between GPUs; small models make the update weigh more."
    lines = tuple(
        Line(f"{who} worker's mini-batch over DDP's, mean", fmean(p[place] for p in published), ours, remark)
        for place, (who, ours) in enumerate(
            (("ordinary", fmean(row[-2] for row in rows)), ("last", fmean(row[-1] for row in rows)))
        )
    )
    return Findings(table, lines, NOTES)


def draw(findings: Findings) -> Any:
    """Two dots per model on one scale: DDP is 1."""
    rows = [(row["example"], row["ordinary_over_ddp"], row["last_over_ddp"], 1.0) for row in findings.table.records()]
    rows += [(name, worker / ddp, last / ddp, 0.35) for name, (ddp, worker, last) in FIGURE_13.items()]
    sheet = Sheet(1, 1, 0.9 + 0.2 * len(rows))
    panel = sheet.panels[0]
    for place, (_, ordinary, last, alpha) in enumerate(rows):
        names = ("ordinary worker", "last worker (adds up and updates)") if place == 0 else (None, None)
        panel.plot((ordinary, last), (place, place), color="0.7", linewidth=1, zorder=1)
        panel.plot(ordinary, place, "o", color=BLUE, alpha=alpha, label=names[0])
        panel.plot(last, place, "s", color=ORANGE, alpha=alpha, label=names[1])
    panel.axvline(1.0, color=BLACK, linewidth=1, linestyle=":", label="stock DDP")
    panel.set_yticks(range(len(rows)), [name for name, *_ in rows])
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlim(left=0)
    panel.set_xlabel("time of a mini-batch / that of stock DDP")
    panel.grid(axis="y", visible=False)
    sheet.legend(panel, 3)
    return sheet.finish(findings.notes)
