"""Predicted against measured iteration latency, and the distribution of the error by form."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from experiments.figure_context import FigureContext
from experiments.findings import Findings, Line
from experiments.form_evaluation import SPLITS, Trial, run_trials, score_trials
from experiments.srifty.points import Measured, load_a100, load_t4
from experiments.styles import BLACK, CYCLE, Sheet, set_log_ticks
from experiments.tables import make_table
from springtide.throughput.model.forms import DEFAULT_FORM, FORMS

SRIFTY = 0.08
TICKS_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
PRIOR = f"{DEFAULT_FORM} + prior"
QUANTILES = tuple(round(0.05 * step, 2) for step in range(21))
SHOWN = (PRIOR, DEFAULT_FORM, "ernest", "pollux", "nearest")
SPLIT_NAMES = {"sparse": "A100: fit 1, 8, 16 GPUs", "small": "T4: fit up to 8 GPUs", "probes": "T4: fit nine probes"}


def measure(context: FigureContext) -> Findings:
    """Every form on the frozen splits of both tables."""
    tables = {"sparse": load_a100(context)}
    if not context.quick:
        t4 = load_t4(context)
        tables |= {"small": t4, "probes": t4} if not t4.notes and context.sources.measurements else {}
    scores, errors, rows = [], [], []
    for number, (split, table) in enumerate(tables.items()):
        context.tell(f"predicting, split {split}", number / len(tables))
        found = context.remember(__name__, [split, table.digest], partial(try_forms, split, table))
        scores += found["scores"]
        errors += found["errors"]
        rows += found["rows"]
    main = make_table(
        ("split", "form", "rows", "mean_error", "median_error", "covered_by_90_percent"), scores, labels=2
    )
    others = {
        "errors": make_table(("split", "form", "quantile", "error"), errors, labels=3),
        "rows": make_table(
            ("split", "model", "nodes", "devices", "local_batch", "measured_s", "predicted_s"), rows, labels=5
        ),
    }
    notes = next(iter(tables.values())).notes
    return Findings(main, compare(scores), (*notes, "Every prediction is of a row that was not fitted."), others)


def try_forms(split: str, table: Measured) -> dict[str, Any]:
    """Scores, quantiles of the error, and our own predictions on one split, as plain values."""
    trials = {PRIOR: run_trials(table.points, SPLITS[split], DEFAULT_FORM, prior=True)}
    trials |= {form: run_trials(table.points, SPLITS[split], form, prior=False) for form in FORMS}
    scores, errors = [], []
    for form, found in trials.items():
        score = score_trials(found)
        scores.append((split, form, score.rows, score.mape, score.median, score.coverage))
        values = np.quantile([trial.error for trial in found], QUANTILES)
        errors += [(split, form, quantile, float(value)) for quantile, value in zip(QUANTILES, values, strict=True)]
    return {"scores": scores, "errors": errors, "rows": [tabulate(split, trial) for trial in trials[PRIOR]]}


def tabulate(split: str, trial: Trial) -> tuple[Any, ...]:
    """One prediction."""
    at = trial.point.layout
    return split, at.model, at.nodes, at.devices, at.local_batch, trial.point.step_s, trial.prediction.step_s


def compare(scores: Sequence[Sequence[Any]]) -> tuple[Line, ...]:
    """The mean error of our form, and of the best known other, per split."""
    lines = []
    for split, form, rows, mean, median, covered in scores:
        if form in (PRIOR, DEFAULT_FORM):
            remark = (
                f"Srifty's 8 % is on its own EC2 runs, ours on {rows} rows of public tables; median {median:.1%}, "
                f"{covered:.0%} inside the 90 % interval."
            )
            lines.append(Line(f"mean error, {form}, {SPLIT_NAMES[split]}", SRIFTY, mean, remark))
    return tuple(lines)


def draw(findings: Findings) -> Any:
    """Per split: predictions against measurements above, the error's distribution by form below."""
    splits = list(dict.fromkeys(findings.table.column("split")))
    sheet = Sheet(2, len(splits), 5.0, width_in=max(3.8, 2.4 * len(splits)))
    rows, errors = list(findings.others["rows"].records()), list(findings.others["errors"].records())
    for column, split in enumerate(splits):
        draw_scatter(sheet.panels[column], [row for row in rows if row["split"] == split])
        sheet.panels[column].set_title(SPLIT_NAMES[split], loc="left")
        draw_errors(sheet.panels[len(splits) + column], [row for row in errors if row["split"] == split])
    sheet.panels[0].set_ylabel("predicted step (s)")
    sheet.panels[len(splits)].set_ylabel("share of predictions")
    sheet.legend(sheet.panels[len(splits)], 3)
    return sheet.finish(findings.notes)


def draw_scatter(panel: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Each prediction of our form with a prior."""
    measured, predicted = [row["measured_s"] for row in rows], [row["predicted_s"] for row in rows]
    panel.plot(
        measured,
        predicted,
        ".",
        color=CYCLE[0],
        markersize=3,
        alpha=0.5 if len(rows) > 300 else 0.9,
        rasterized=len(rows) > 300,
    )
    ends = min(measured), max(measured)
    panel.plot(ends, ends, color=BLACK, linewidth=0.8)
    panel.set_xscale("log")
    panel.set_yscale("log")
    set_log_ticks(panel.xaxis, TICKS_S)
    set_log_ticks(panel.yaxis, TICKS_S)
    panel.set_xlim(0.8 * ends[0], 1.25 * ends[1])
    panel.set_ylim(0.8 * ends[0], 1.25 * ends[1])
    panel.set_xlabel("measured step (s)")


def draw_errors(panel: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """The share of predictions within an error, by form."""
    for number, form in enumerate(SHOWN):
        mine = [row for row in rows if row["form"] == form]
        panel.plot(
            [100 * row["error"] for row in mine], [row["quantile"] for row in mine], color=CYCLE[number], label=form
        )
    panel.axvline(100 * SRIFTY, color="0.4", linewidth=0.8, linestyle=":", label="Srifty's published mean")
    panel.set_xscale("symlog", linthresh=10)
    panel.set_xlim(0, 200)
    panel.set_xticks([0, 5, 10, 50, 100], ["0", "5", "10", "50", "100"])
    panel.set_xlabel("error of the step time (%)")
    panel.set_ylim(0, 1.02)
