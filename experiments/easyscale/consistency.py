"""Figure 9: the last worker's loss through three stages, and at which steps its bits are those of stock DDP."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.styles import BLUE, ORANGE, PALE, Sheet
from experiments.tables import Cell, Table, make_table

STAGES = ("4 V100", "2 V100", "1 V100 + 2 P100")
# panel -> reference, and ours with their colours
PANELS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "homo": ("DDP-homo", {"D0": ORANGE, "D1": BLUE}),
    "heter": ("DDP-heter", {"D0+D2": ORANGE, "D1+D2": BLUE}),
}
# The last stage in which each must have the reference's bits (EasyScale, README of the artifact).
PROMISED = {("D1", "DDP-homo"): 2, ("D1+D2", "DDP-heter"): 3, ("D0", "DDP-homo"): 1, ("D0+D2", "DDP-heter"): 1}
NOTES = (
    "Real training of the CNN example, four logical workers, digits shifted and made noisy at random; device types "
    "emulated by the instruction set that the CPU libraries may use. D0 adds gradients in the order of the present "
    "processes: our own runtime never does.",
)


def measure(context: FigureContext) -> Findings:
    """Six runs through the stages."""
    per_stage = 8 if context.quick else 100
    order = {"example": "cnn", "batch": 16, "per_stage": per_stage}
    found = context.measure("experiments.stages", order)
    table = tabulate(found["losses"], per_stage)
    notes = (*NOTES, f"{per_stage} mini-batches per stage.")
    return Findings(table, compare(found["differs"], per_stage), notes)


def tabulate(losses: Mapping[str, Sequence[str]], per_stage: int) -> Table:
    """One row per run and step; equality is that of all 64 bits of the loss."""
    columns = ("run", "step", "stage", "loss", "loss_hex", "equals_ddp_homo", "equals_ddp_heter")
    rows: list[tuple[Cell, ...]] = []
    for name, values in losses.items():
        for place, value in enumerate(values):
            same = [value == losses[reference][place] for reference in ("DDP-homo", "DDP-heter")]
            rows.append((name, place + 1, place // per_stage, float.fromhex(value), value, *same))
    return make_table(columns, rows, labels=3)


def compare(differs: Mapping[str, Mapping[str, int | None]], per_stage: int) -> tuple[Line, ...]:
    """What each level promises, and where its whole state really leaves the reference."""
    lines = []
    for (name, reference), stages in PROMISED.items():
        step = differs[name][reference]
        ours = "never differs" if step is None else f"first differs in step {step} (stage {(step - 1) // per_stage})"
        kept = step is None or step > stages * per_stage
        remark = "Kept: parameters, optimizer, buffers and losses compared by bits." if kept else "NOT kept."
        lines.append(Line(f"{name} against {reference}", f"equal through stage {stages - 1}", ours, remark))
    return tuple(lines)


def draw(findings: Findings) -> Any:
    """Losses above; below, a strip per run that is filled where the bits are equal."""
    rows = list(findings.table.records())
    last = max(row["step"] for row in rows)
    sheet = Sheet(2, 2, 3.6, sharex=True, height_ratios=(3, 1))
    for column, (kind, (reference, ours)) in enumerate(PANELS.items()):
        above, below = sheet.panels[column], sheet.panels[2 + column]
        draw_losses(above, rows, reference, ours)
        for place, (name, colour) in enumerate(ours.items()):
            same = [row[f"equals_ddp_{kind}"] for row in rows if row["run"] == name]
            below.broken_barh(find_spans(same), (place - 0.35, 0.7), facecolor=colour)
        below.set_yticks(range(len(ours)), list(ours))
        below.set_ylim(len(ours) - 0.4, -0.6)
        below.set_xlabel(f"mini-batch (filled: same bits as {reference})")
        for stage, name in enumerate(STAGES):
            above.text(
                (stage + 0.5) * last / 3, 1.01, name, transform=above.get_xaxis_transform(), ha="center", fontsize=7
            )
        for panel in (above, below):
            panel.set_xlim(1, last)
            for stage in (1, 2):
                panel.axvline(stage * last / 3 + 0.5, color="0.5", linewidth=0.8, linestyle=":")
    sheet.panels[0].set_ylabel("loss of the last worker (log)")
    return sheet.finish(findings.notes)


def draw_losses(panel: Any, rows: Sequence[Mapping[str, Any]], reference: str, ours: Mapping[str, str]) -> None:
    """The reference as a broad line, ours on it."""
    styles: dict[str, dict[str, Any]] = {reference: {"color": PALE, "linewidth": 4}}
    for number, (name, colour) in enumerate(ours.items()):
        styles[name] = {"color": colour, "linewidth": 1.0, "linestyle": ("--", "-")[number]}
    for name, style in styles.items():
        mine = [row for row in rows if row["run"] == name]
        panel.plot([row["step"] for row in mine], [row["loss"] for row in mine], label=name, **style)
    panel.set_yscale("log")
    panel.legend(loc="lower left")


def find_spans(flags: Sequence[bool]) -> list[tuple[float, float]]:
    """(start, width) of each run of true flags, a step each from 0.5 before it on."""
    spans: list[tuple[float, float]] = []
    for place, flag in enumerate(flags):
        if flag and spans and sum(spans[-1]) == place + 0.5:
            spans[-1] = spans[-1][0], spans[-1][1] + 1
        elif flag:
            spans.append((place + 0.5, 1.0))
    return spans
