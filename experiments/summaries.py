"""summary.md: for every figure in a folder what was published, what we found, the command, and one honest sentence.

Each figure leaves its lines beside its data, so that figures made at different times stand in one summary.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.figures import FIGURES
from experiments.findings import Findings, Line

HEAD = """# Figures

Written by `springtide figures`. Every number of ours comes from the CSV beside the picture; the published ones are from
the papers and their artifacts. *Ratio* is ours over published.

| Figure | What | Published | Ours | Ratio | Command | In one sentence |
|---|---|---|---|---|---|---|
"""


def note_figure(folder: Path, figure_id: str, findings: Findings, command: str) -> None:
    """Leave a finished figure's lines for the summary."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [_show_line(line) for line in findings.lines]
    entry = {"command": command, "lines": lines, "notes": findings.notes}
    entry |= {"unfinished": findings.unfinished, "problems": findings.problems}
    (folder / f"{figure_id}.json").write_text(json.dumps(entry, indent=1) + "\n", encoding="utf-8")


def _show_line(line: Line) -> dict[str, str]:
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    return {
        "what": line.what,
        "published": show_value(line.published, line.unit),
        "ours": show_value(line.ours, line.unit),
        "ratio": ratio,
        "remark": line.remark,
    }


def show_value(value: float | str | None, unit: str) -> str:
    """A value with its unit, or a dash."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    text = f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{text} {unit}".strip()


def render_summary(folder: Path) -> str:
    """The summary of every figure that has left its lines."""
    rows, remarks = [], []
    for figure in FIGURES:
        path = folder / f"{figure.id}.json"
        if path.is_file():
            entry = json.loads(path.read_text(encoding="utf-8"))
            rows += list(_render_rows(figure.id, entry))
            remarks += list(_render_remarks(figure.id, entry))
    return HEAD + "\n".join(rows) + "\n" + ("\n" + "\n".join(remarks) + "\n" if remarks else "")


def _render_rows(figure_id: str, entry: dict[str, Any]) -> Iterable[str]:
    for line in entry["lines"]:
        cells = (figure_id, line["what"], line["published"], line["ours"], line["ratio"], f"`{entry['command']}`")
        yield (
            "| "
            + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in (*cells, line["remark"]))
            + " |"
        )


def _render_remarks(figure_id: str, entry: dict[str, Any]) -> Iterable[str]:
    for note in entry["notes"]:
        yield f"- {figure_id}: {note}"
    for run in entry["unfinished"]:
        yield f"- {figure_id}: **not finished** within five minutes: {run}"
    for problem in entry["problems"]:
        yield f"- {figure_id}: **left out**: {problem}"
