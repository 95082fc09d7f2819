"""Figure 12: what determinism costs, by level and emulated device type."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from experiments.easyscale.published import CONVOLUTIONAL, FIGURE_12
from experiments.emulated_devices import DEVICE_TYPES
from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.styles import BLUE, ORANGE, Sheet
from experiments.tables import make_table

EXAMPLES = ("cnn", "recommender", "resnet", "gpt")
LEVELS = ("D1", "D1+D2")
WORKERS = 4
NOTES = (
    "Ours: CPU time over a plain accumulation loop; device types emulated by the instruction set that the CPU "
    "libraries may use. Published (pale): GPUs over non-deterministic DDP.",
)


def measure(context: FigureContext) -> Findings:
    """The time of a mini-batch at each level over a plain loop's."""
    examples, steps, rounds = (EXAMPLES[1:2], 6, 1) if context.quick else (EXAMPLES, 8, 2)
    rows = []
    for example in examples:
        order = {"what": "levels", "example": example, "workers": WORKERS, "steps": steps, "rounds": rounds}
        for kind, seconds in context.measure("experiments.overheads", order).items():
            for level in LEVELS:
                state = "refused" if seconds[level] == "refused" else "trained"
                ratio = None if state == "refused" else seconds[level] / seconds["base"]
                rows.append((example, kind, level, state, seconds["base"], seconds[level] if ratio else None, ratio))
    columns = ("example", "device_type", "level", "state", "base_s", "level_s", "over_base")
    table = make_table(columns, rows, labels=4, measured=columns[4:])
    return Findings(table, tuple(compare(rows, level) for level in LEVELS), NOTES)


def compare(rows: Sequence[tuple[Any, ...]], level: str) -> Line:
    """The mean cost of a level beside the published one."""
    place = LEVELS.index(level) + 1
    published = fmean(kinds[kind][place] / kinds[kind][0] for kinds in FIGURE_12.values() for kind in DEVICE_TYPES)
    ours = fmean(row[-1] for row in rows if row[2] == level and row[-1] is not None)
    refused = sorted({str(row[0]) for row in rows if row[2] == level and row[-1] is None})
    remark = (
        "CPUs: D1 needs no other kernels. D2 gives up oneDNN, which costs convolutions, and on the emulated P100, "
        "where oneDNN is held to old instructions, is a gain."
    )
    if refused:
        remark += f" D2 refuses {', '.join(refused)}: operators that were not tested across types."
    return Line(f"mini-batch at {level} over none, mean of V100 and P100", published, ours, remark)


def draw(findings: Findings) -> Any:
    """A panel per device type, a pair of bars per model."""
    rows = list(findings.table.records())
    kinds = list(dict.fromkeys(row["device_type"] for row in rows))
    examples = list(dict.fromkeys(row["example"] for row in rows))
    names = [*examples, *FIGURE_12]
    sheet = Sheet(1, len(kinds), 0.9 + 0.28 * len(names), sharey=True)
    for panel, kind in zip(sheet.panels, kinds, strict=True):
        for place, name in enumerate(names):
            for number, level in enumerate(LEVELS):
                if name in examples:
                    row = next(r for r in rows if (r["example"], r["device_type"], r["level"]) == (name, kind, level))
                    value, alpha = row["over_base"], 1.0
                else:
                    seconds = FIGURE_12[name][kind]
                    value, alpha = seconds[number + 1] / seconds[0], 0.35
                draw_bar(
                    panel,
                    place + 0.36 * (number - 0.5),
                    value,
                    (BLUE, ORANGE)[number],
                    alpha,
                    level if place == 0 else None,
                )
        panel.axvline(1.0, color="0.3", linewidth=0.8, linestyle=":")
        panel.set_yticks(range(len(names)), [f"{name} *" if name in CONVOLUTIONAL else name for name in names])
        panel.set_ylim(len(names) - 0.5, -0.5)
        panel.set_title(f"{kind} (emulated for ours)", loc="left")
        panel.set_xlabel("time of a mini-batch / without determinism")
        panel.grid(axis="y", visible=False)
    sheet.legend(sheet.panels[0], 2)
    return sheet.finish((*findings.notes, "* convolutional."))


def draw_bar(panel: Any, at: float, value: float | None, colour: str, alpha: float, label: str | None) -> None:
    """One bar, or the word for a level that refused the model."""
    if value is None:
        panel.text(0.05, at, "refused: operators not tested", va="center", fontsize=6)
        return
    panel.barh(at, value, height=0.34, color=colour, alpha=alpha, label=label)
    panel.text(value + 0.04, at, f"{value:.2f}", va="center", fontsize=6)
