"""Figures 12a and 12b: what a profile and a rescale cost, measured with real training processes on this machine."""

from collections.abc import Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from experiments.elasticflow.published import FIGURE_12A, FIGURE_12B
from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.styles import BLACK, BLUE, CYCLE, PALE, Sheet, set_log_ticks
from experiments.tables import make_table
from springtide.examples import folder
from springtide.throughput.probing import ProfiledScript, plan_trials, profile_script

EXAMPLES = ("cnn", "recommender", "resnet", "gpt")
COUNTS = (1, 2)
SECONDS = 30.0
STEPS = 20
# Our changes of processes, and the paper's beside each.
CHANGES = {(1, 2): "1 to 2", (2, 1): "2 to 1", (2, 4): "8 to 16", (4, 2): "16 to 8", (2, 2): "migrate 8"}
ROUND = (2, 4, 2, 2, 1)
HERE = "On this machine's CPU cores with small models; the paper: A100 servers."


def measure_probes(context: FigureContext) -> Findings:
    """Seconds that `springtide profile` takes for each example: every run, with start-up."""
    examples, counts, seconds, steps = (
        (EXAMPLES[:1], (1,), 4.0, 8) if context.quick else (EXAMPLES, COUNTS, SECONDS, STEPS)
    )
    trials = len(plan_trials(counts))
    rows = []
    for number, example in enumerate(examples):
        context.tell(f"profiling {example}", number / len(examples))
        order: dict[str, Any] = {"example": example, "counts": counts, "seconds": seconds, "steps": steps}
        took_s = context.remember(__name__, order, partial(time_profile, **order))
        rows.append((example, trials, took_s))
    table = make_table(("example", "runs", "seconds"), rows, measured=["seconds"])
    published = median(FIGURE_12A.values())
    remark = "Other models, and one machine's processes instead of 1 to 64 GPUs; median of the paper's six beside it."
    lines = tuple(Line(f"seconds to profile {example}", published, took_s, remark, "s") for example, _, took_s in rows)
    return Findings(
        table, lines, (HERE, f"{trials} runs each: three batches, {' and '.join(map(str, counts))} processes.")
    )


def time_profile(example: str, counts: Sequence[int], seconds: float, steps: int) -> float:
    """Wall seconds of one profile."""
    subject = ProfiledScript(folder(example) / "train.py", (), example, "cpu")
    started_s = perf_counter()
    profile_script(subject, counts, seconds, steps, lambda line: None)
    return perf_counter() - started_s


def draw_probes(findings: Findings) -> Any:
    """Ours and the paper's models below one another."""
    rows = [(row["example"], row["seconds"], BLUE) for row in findings.table.records()]
    rows += [(f"{name} (published)", seconds, PALE) for name, seconds in FIGURE_12A.items()]
    sheet = Sheet(1, 1, 0.9 + 0.22 * len(rows))
    panel = sheet.panels[0]
    panel.barh(range(len(rows)), [seconds for _, seconds, _ in rows], color=[colour for *_, colour in rows], height=0.7)
    for place, (_, seconds, _) in enumerate(rows):
        panel.text(seconds + 5, place, f"{seconds:.0f}", va="center", fontsize=6.5)
    panel.set_yticks(range(len(rows)), [name for name, *_ in rows])
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlabel("time to profile (s)")
    panel.grid(axis="y", visible=False)
    return sheet.finish(findings.notes)


def measure_pauses(context: FigureContext) -> Findings:
    """Pauses of growing, shrinking and moving each example."""
    examples, rounds = (EXAMPLES[:1], 1) if context.quick else (EXAMPLES[:3], 3)
    rows = []
    for example in examples:
        order = {"example": example, "sizes": [1, *ROUND * rounds]}
        found = context.measure("experiments.pauses", order)
        for pair, other in CHANGES.items():
            pauses = [pause_s for before, after, pause_s in found if (before, after) == pair]
            rows.append((example, describe(pair), len(pauses), other, *FIGURE_12B[other], median(pauses), max(pauses)))
    columns = ("example", "change", "changes", "published_change", "published_least_s", "published_most_s")
    table = make_table((*columns, "median_s", "worst_s"), rows, labels=2, measured=["median_s", "worst_s"])
    return Findings(table, compare(rows), (HERE, "Real processes, resized while they train; fewer than the paper's."))


def describe(pair: tuple[int, int]) -> str:
    """A change in words."""
    return f"migrate 1 of {pair[0]}" if pair[0] == pair[1] else f"{pair[0]} to {pair[1]}"


def compare(rows: Sequence[tuple[Any, ...]]) -> tuple[Line, ...]:
    """Each change beside the paper's range."""
    return tuple(
        Line(
            f"{example}, pause of {change} processes",
            f"{least}-{most} s ({other})",
            f"{middle:.3f} s",
            explain(middle, most),
        )
        for example, change, _, other, least, most, middle, _ in rows
    )


def explain(pause_s: float, published_s: float) -> str:
    """One sentence on a pause beside the paper's longest."""
    if pause_s > published_s:
        return "Slower: a pause holds a whole step, which takes seconds on a CPU core with other work on it."
    return "A CPU process instead of a GPU worker: no device context and no NCCL group to set up."


def draw_pauses(findings: Findings) -> Any:
    """Dots for ours, a bar for the paper's range, on a logarithmic scale."""
    rows = list(findings.table.records())
    changes = list(dict.fromkeys(row["change"] for row in rows))
    sheet = Sheet(1, 1, 3.2)
    panel = sheet.panels[0]
    for place, change in enumerate(changes):
        row = next(row for row in rows if row["change"] == change)
        label = "published, range over its models" if place == 0 else None
        ends = row["published_least_s"], row["published_most_s"]
        panel.plot(ends, (place, place), color=BLACK, linewidth=5, alpha=0.3, solid_capstyle="butt", label=label)
    for number, example in enumerate(dict.fromkeys(row["example"] for row in rows)):
        mine = [row for row in rows if row["example"] == example]
        places = [changes.index(row["change"]) + 0.14 * (number - 1) for row in mine]
        medians, worst = [row["median_s"] for row in mine], [row["worst_s"] for row in mine]
        panel.hlines(places, medians, worst, color=CYCLE[number], linewidth=1)
        panel.plot(medians, places, "o", color=CYCLE[number], label=f"{example} (line: to the worst)")
    others = {row["change"]: row["published_change"] for row in rows}
    panel.set_yticks(range(len(changes)), [f"{change}\n(paper: {others[change]})" for change in changes])
    panel.set_ylim(len(changes) - 0.5, -0.5)
    panel.set_xscale("log")
    set_log_ticks(panel.xaxis, (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20))
    ends = min(row["median_s"] for row in rows), max(row["worst_s"] for row in rows)
    panel.set_xlim(min(0.05, ends[0] / 1.3), max(6, 1.3 * ends[1]))
    panel.set_xlabel("pause (s), logarithmic")
    panel.grid(axis="y", visible=False)
    sheet.legend(panel, 2)
    return sheet.finish(findings.notes)
