"""Figure 10: memory and throughput of 1 to 16 workers on one device, as logical workers and packed."""

from collections.abc import Sequence
from typing import Any

from experiments.easyscale.published import FIGURE_10_LOGICAL_MB, FIGURE_10_PACKED_MB
from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.peaks import MIB
from experiments.styles import BLACK, BLUE, ORANGE, Sheet
from experiments.tables import make_table

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
DEVICE_MIB = 1400
QUICK_COUNTS = (1, 2, 4)
COLUMNS = ("kind", "workers", "state", "memory_mib", "minibatch_cpu_s", "minibatches_per_cpu_s")
COLOURS = {"logical workers": BLUE, "packing": ORANGE}


def measure(context: FigureContext) -> Findings:
    """Peak memory and time of a mini-batch, by number of workers."""
    example, counts, device_mib = ("cnn", QUICK_COUNTS, 700) if context.quick else ("resnet", COUNTS, DEVICE_MIB)
    order = {"example": example, "counts": counts, "device_bytes": device_mib * MIB, "steps": 2}
    found = context.measure("experiments.sharing", order)
    rows = [tabulate(*row) for row in found]
    table = make_table(COLUMNS, rows, labels=3, measured=COLUMNS[3:])
    notes = (
        f"The {example} example; private memory of all processes, CPU time. An emulated device of {device_mib} MiB: "
        "more packed workers than fit are not started. Each logical worker keeps a copy of the gradients (the paper: "
        "on the host).",
    )
    return Findings(table, compare(rows), notes)


def tabulate(workers: int, kind: str, memory: float | None, seconds: float | None) -> tuple[Any, ...]:
    """One row of the table."""
    if memory is None or seconds is None:
        return kind, workers, "out of memory", None, None, None
    return kind, workers, "trained", memory / MIB, seconds, 1 / seconds


def compare(rows: Sequence[tuple[Any, ...]]) -> tuple[Line, ...]:
    """Growth of memory, and how far packing gets."""
    logical = {row[1]: row[3] for row in rows if row[0] == "logical workers"}
    packed = {row[1]: row[3] for row in rows if row[0] == "packing" and row[3] is not None}
    most, fits = max(logical), max(packed)
    return (
        Line(
            f"memory of {most} logical workers over 1",
            1.0,
            logical[most] / logical[1],
            "Ours counts the gradient copies, one per worker, which the paper keeps in host memory.",
        ),
        Line(
            f"memory of {fits} packed workers over 1",
            FIGURE_10_PACKED_MB[min(fits, 7) - 1] / FIGURE_10_PACKED_MB[0],
            packed[fits] / packed[1],
            f"Packing runs out of memory beyond {fits} on our emulated device, beyond 7 on the paper's.",
        ),
    )


def draw(findings: Findings) -> Any:
    """Memory on the left, throughput on the right."""
    rows = list(findings.table.records())
    sheet = Sheet(1, 2, 2.9)
    for panel, column, heading in zip(
        sheet.panels,
        ("memory_mib", "minibatches_per_cpu_s"),
        ("peak private memory (MiB)", "mini-batches per CPU second"),
        strict=True,
    ):
        for kind, colour in COLOURS.items():
            mine = [row for row in rows if row["kind"] == kind and row[column] is not None]
            panel.plot([row["workers"] for row in mine], [row[column] for row in mine], "o-", color=colour, label=kind)
            failed = [row["workers"] for row in rows if row["kind"] == kind and row["state"] == "out of memory"]
            if failed and column == "memory_mib":
                top = max(row[column] for row in rows if row[column] is not None)
                panel.plot(failed, [1.08 * top] * len(failed), "x", color=colour, label="packing, out of memory")
        panel.set_xlabel("workers on one device")
        panel.set_ylabel(heading)
        panel.set_ylim(0, 1.2 * max(row[column] for row in rows if row[column] is not None))
        panel.set_xticks(sorted({row["workers"] for row in rows}))
    draw_published(sheet.panels[0], rows)
    sheet.legend(sheet.panels[0], 2)
    return sheet.finish(findings.notes)


def draw_published(panel: Any, rows: Sequence[dict[str, Any]]) -> None:
    """The paper's growth, scaled to our first packed worker."""
    first = next(row["memory_mib"] for row in rows if row["kind"] == "packing")
    last = max(row["workers"] for row in rows)
    scale = first / FIGURE_10_PACKED_MB[0]
    counts = range(1, min(last, len(FIGURE_10_PACKED_MB)) + 1)
    shown = {"color": BLACK, "linewidth": 0.8, "linestyle": ":"}
    panel.plot(counts, [scale * FIGURE_10_PACKED_MB[count - 1] for count in counts], **shown)
    level = scale * FIGURE_10_LOGICAL_MB
    panel.plot((1, last), (level, level), label="published (ResNet50), scaled to 1 worker", **shown)
