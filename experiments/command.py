"""`springtide figures`: redraw the figures of the three papers from our own runs, from data to picture."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from springtide.cli.outputs import OUTPUT, OutputOption, tell

if TYPE_CHECKING:
    from experiments.figure_files import Made


def run(
    out: Path = typer.Option(..., "--out", metavar="DIR", help="Folder for CSV, PNG, SVG and summary.md."),
    paper: str = typer.Option(None, metavar="NAME", help="Only of one paper: elasticflow, easyscale or srifty."),
    fig: list[str] = typer.Option([], "--fig", metavar="ID", help="Only this figure, e.g. 8a or elasticflow-8a."),
    data: Path = typer.Option(None, metavar="DIR", help="Public data: traces/, profiles/, measurements/ beneath it."),
    traces: Path = typer.Option(None, metavar="DIR", help="Traces, if not those of --data."),
    profiles: Path = typer.Option(None, metavar="DIR", help="Profiles, if not those of --data."),
    cluster: str = typer.Option(None, metavar="SPEC", help="NODESxGPUS:TYPE for traces whose cluster is not known."),
    quick: bool = typer.Option(False, "--quick", help="Everything small: a look at all figures in minutes."),
    jobs: int = typer.Option(2, "--jobs", metavar="N", min=1, help="Processes for simulations."),
    output: OutputOption = OUTPUT,
) -> None:
    """Redraw the figures of ElasticFlow, EasyScale and Srifty from our own runs.

    Without --data, seeded synthetic traces and packaged profiles serve, and each figure says so on its face. Finished
    runs are kept in DIR/.cache: a command that was broken off goes on where it was.

    Examples:

      springtide figures --quick --out figures

      springtide figures --paper elasticflow --fig 8a --data DIR --out figures
    """
    from experiments.caches import Cache
    from experiments.figure_context import FigureContext
    from experiments.figure_files import HIDDEN, make_all, open_folder
    from experiments.figures import choose_figures
    from experiments.sources import open_sources

    figures = choose_figures(paper, fig)
    sources = open_sources(data, traces, profiles, cluster)
    open_folder(out)
    words = list_words(locals())
    with show_progress(len(figures)) as (progress, report):
        context = FigureContext(sources, Cache(out / HIDDEN), quick, jobs, progress)
        made = make_all(figures, out, context, words, report)
    if not output.write({"schema": 1, "out": str(out), "figures": [describe(one) for one in made]}):
        complete = sum(one.complete for one in made)
        print(f"{complete} of {len(made)} figures complete; see {out / 'summary.md'}")
    if not all(one.complete for one in made):
        raise typer.Exit(1)


def list_words(options: dict[str, Any]) -> list[str]:
    """The options that decide a figure's content, as words of a command; folders of this machine stay out of it."""
    words = [f"--{name}={name.upper()}" for name in ("data", "traces", "profiles") if options[name] is not None]
    words += [f"--cluster={options['cluster']}"] if options["cluster"] else []
    return [*words, *(["--quick"] if options["quick"] else []), "--out=OUT"]


def describe(made: "Made") -> dict[str, Any]:
    """A figure as an entry of the JSON document."""
    findings = made.findings
    return {
        "id": made.figure.id,
        "title": made.figure.title,
        "state": "failed" if findings is None else "complete" if made.complete else "incomplete",
        "error": made.error or None,
        "files": [str(path) for path in made.files],
        "unfinished": list(findings.unfinished) if findings else [],
        "problems": list(findings.problems) if findings else [],
    }


@contextmanager
def show_progress(figures: int) -> Iterator[tuple[Callable[[str, float], None], Callable[["Made"], None]]]:
    """(what hears of runs, what hears of figures): a bar where stderr is a terminal, lines where it is not."""
    if not sys.stderr.isatty():
        yield (lambda what, done: None), report_made
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        whole, part = bar.add_task("figures", total=figures), bar.add_task("", total=1.0)

        def report(made: "Made") -> None:
            bar.update(whole, advance=1)
            report_made(made)

        yield (lambda what, done: bar.update(part, description=what[:50], completed=done)), report


def report_made(made: "Made") -> None:
    """Say what became of a figure."""
    if made.findings is None:
        tell(f"{made.figure.id}: FAILED: {made.error}")
        if made.trace:
            tell(made.trace)
        return
    tell(f"{made.figure.id}: {'done' if made.complete else 'drawn, but not complete'}")
    for run_name in made.findings.unfinished:
        tell(f"  not finished within five minutes: {run_name}")
    for problem in made.findings.problems:
        tell(f"  left out: {problem}")
