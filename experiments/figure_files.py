"""Makes figures one after the other into a folder; one that fails does not stop the others.

Per figure: CSV (timings apart), PNG, SVG, and its lines in summary.md. Files of figures made before are kept.
"""

import shlex
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from experiments import styles
from experiments.figure_context import FigureContext, has_module
from experiments.figures import Figure
from experiments.findings import Findings
from experiments.summaries import note_figure, render_summary
from experiments.tables import SEPARATE, Table, write_csv, write_timing
from springtide.errors import InputError, SpringtideError

SUMMARY = "summary.md"
HIDDEN = ".cache"


@dataclass(frozen=True, slots=True)
class Made:
    """A figure that was tried: its files, or why there are none."""

    figure: Figure
    files: tuple[Path, ...] = ()
    findings: Findings | None = None
    error: str = ""
    trace: str = field(default="", repr=False)

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for is there."""
        return self.findings is not None and not (self.findings.problems or self.findings.unfinished)


def open_folder(out: Path) -> None:
    """Make the output folder, or refuse it before anything is run for it."""
    if not has_module("matplotlib"):
        raise InputError("drawing needs matplotlib; install it with: pip install 'springtide[figures]'")
    probe = out / HIDDEN / "writable"
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_text("", encoding="utf-8")
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"--out {str(out)!r} cannot be written ({error.strerror}); give a folder that can be made"
        ) from None


def make_all(
    figures: Iterable[Figure], out: Path, context: FigureContext, words: list[str], tell: Callable[[Made], None]
) -> list[Made]:
    """Every figure in turn, each told of as soon as it is there."""
    results = []
    for figure in figures:
        made = make_one(figure, out, context, words)
        results.append(made)
        tell(made)
    return results


def make_one(figure: Figure, out: Path, context: FigureContext, words: list[str]) -> Made:
    """One figure, whatever becomes of it."""
    missing = [name for name in figure.needs if not has_module(name)]
    if missing:
        return Made(figure, error=f"needs {' and '.join(missing)}; install with: pip install 'springtide[train]'")
    try:
        findings = figure.measure(context)
        files = write_files(figure, findings, out)
        command = shlex.join(["springtide", "figures", "--fig", figure.id, *words])
        note_figure(out / HIDDEN / "lines", figure.id, findings, command)
        (out / SUMMARY).write_text(render_summary(out / HIDDEN / "lines"), encoding="utf-8")
    except SpringtideError as error:
        return Made(figure, error=str(error))
    except OSError as error:
        what = f"{error.filename or out}: {error.strerror or error}"
        return Made(figure, error=f"{what}; finished runs are kept: put it right and give the command again")
    except Exception as error:  # a defect of one figure must not cost the others
        return Made(figure, error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
    return Made(figure, tuple(files), findings)


def write_files(figure: Figure, findings: Findings, out: Path) -> list[Path]:
    """The data and the picture of a figure; returns the files."""
    files = write_table(findings.table, out / figure.id)
    for name, table in findings.others.items():
        files += write_table(table, out / f"{figure.id}-{name}")
    with styles.look():
        return files + styles.save(figure.draw(findings), out / figure.id)


def write_table(table: Table, stem: Path) -> list[Path]:
    """A table's CSV, and another for its timings if it has any."""
    texts = {".csv": write_csv(table), SEPARATE: write_timing(table)}
    files = []
    for suffix, text in texts.items():
        if text is not None:
            path = stem.with_name(stem.name + suffix)
            path.write_text(text, encoding="utf-8")
            files.append(path)
    return files
