"""Draws runs over time: for each trace one column, devices held above, deadlines met below, a line per policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from springtide.simulator.batches import TaskResult
from springtide.simulator.recordings import Steps

BINS = 400  # held devices are averaged over this many cells, so that bursts of rescales stay readable
# Okabe and Ito's colours, told apart by colour-blind readers too
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8B6914")
STYLES = ("-", "--", ":")


def draw_outcomes(path: Path, outcomes: Sequence[TaskResult]) -> None:
    """Write the picture of recorded runs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    traces = list(dict.fromkeys(outcome.report.trace for outcome in outcomes))
    figure = Figure(figsize=(6.5 * len(traces), 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, len(traces), squeeze=False, sharex="col")
    for column, trace in enumerate(traces):
        runs = [outcome for outcome in outcomes if outcome.report.trace == trace]
        _draw_held(panels[0][column], runs)
        _draw_met(panels[1][column], runs)
        panels[0][column].set_title(f"{trace}, {runs[0].report.gpus} devices", fontsize=10)
    figure.savefig(path, dpi=150, metadata={"Software": None} if path.suffix.lower() == ".png" else None)


def _draw_held(panel: Any, runs: Sequence[TaskResult]) -> None:
    for number, run in enumerate(runs):
        assert run.recording is not None, "only recorded runs can be drawn"
        hours, held = average_steps(run.recording.held, BINS)
        panel.plot(hours, held, drawstyle="steps-post", label=run.report.policy, **_style(number))
    panel.axhline(runs[0].report.gpus, color="0.6", linewidth=0.8)
    panel.set_ylabel("devices held")
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.25)


def _draw_met(panel: Any, runs: Sequence[TaskResult]) -> None:
    for number, run in enumerate(runs):
        assert run.recording is not None, "only recorded runs can be drawn"
        if number == 0:
            hours, counts = _in_hours(run.recording.submitted)
            panel.plot(hours, counts, drawstyle="steps-post", color="0.6", linewidth=0.8, label="submitted")
        hours, counts = _in_hours(run.recording.met, origin_s=_origin(run))
        share = "-" if run.report.dsr is None else f"{run.report.dsr:.3f}"
        panel.plot(hours, counts, drawstyle="steps-post", label=f"{run.report.policy} {share}", **_style(number))
    panel.set_ylabel("deadlines met")
    panel.set_xlabel("hours since the first submission")
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.25)
    panel.legend(fontsize=8, loc="lower right", frameon=False)


def _style(number: int) -> dict[str, Any]:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": STYLES[number // len(COLOURS) % len(STYLES)],
        "linewidth": 1.2,
    }


def _origin(run: TaskResult) -> float:
    assert run.recording is not None, "only recorded runs can be drawn"
    return run.recording.submitted[0][0] if run.recording.submitted else 0.0


def _in_hours(steps: Steps, origin_s: float | None = None) -> tuple[list[float], list[int]]:
    start_s = origin_s if origin_s is not None else steps[0][0] if steps else 0.0
    return [(since_s - start_s) / 3600 for since_s, _ in steps], [value for _, value in steps]


def average_steps(steps: Steps, cells: int) -> tuple[list[float], list[float]]:
    """(hours since the first step, mean value) of a step function over equal cells of time."""
    import numpy as np

    if len(steps) < 2:
        return [], []
    since = np.array([since_s for since_s, _ in steps])
    values = np.array([value for _, value in steps], dtype=float)
    areas = np.concatenate(([0.0], np.cumsum(values[:-1] * np.diff(since))))
    edges = np.linspace(since[0], since[-1], cells + 1)
    means = np.diff(np.interp(edges, since, areas)) / np.diff(edges)
    return ((edges[:-1] - since[0]) / 3600).tolist(), means.tolist()
