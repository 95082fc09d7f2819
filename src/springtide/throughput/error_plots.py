"""Draws predicted against measured step times. matplotlib is imported only here, and only when something is drawn."""

from collections.abc import Sequence
from pathlib import Path

from springtide.throughput.evaluation import Trial


def draw_trials(trials: Sequence[Trial], target: Path) -> None:
    """Save a picture: one dot per row, measured across, predicted up, on logarithmic axes, with a line at equality."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    axes = figure.subplots()
    models: dict[str, list[Trial]] = {}
    for trial in trials:
        models.setdefault(trial.point.layout.model, []).append(trial)
    for model, members in models.items():
        measured = [trial.point.step_s for trial in members]
        axes.plot(measured, [trial.prediction.step_s for trial in members], "o", ms=4, alpha=0.5, mew=0, label=model)
    ends = [min(trial.point.step_s for trial in trials), max(trial.point.step_s for trial in trials)]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, [0.9 * end for end in ends], [1.1 * end for end in ends], color="black", alpha=0.08, lw=0)
    axes.set(xscale="log", yscale="log", xlabel="measured step, seconds", ylabel="predicted step, seconds")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    error = sum(trial.error for trial in trials) / len(trials)
    axes.set_title(f"{len(trials)} rows not used in the fit, mean error {error:.1%}; band: ±10 %", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(target, dpi=150)
