"""`springtide logs`: what a job writes."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import choose_job, complete_job, connect
from springtide.cli.outputs import OUTPUT, OutputOption, clean_log, tell

if TYPE_CHECKING:
    from springtide.client.log_streams import LogChoice, LogLine

EXIT_CODES = {"failed": 1, "cancelled": 1, "declined": 3}


def run(
    job: str = typer.Argument(
        None, metavar="[JOB]", help="An id, a name or its beginning. Default: the newest.", autocompletion=complete_job
    ),
    follow: bool = typer.Option(False, "-f", "--follow", help="Go on until the job has ended; Ctrl-C detaches."),
    rank: int = typer.Option(0, min=0, help="Which process of the job."),
    all_ranks: bool = typer.Option(False, "--all-ranks", help="All processes, each line with its rank."),
    tail: int = typer.Option(None, "-n", "--tail", min=1, max=100000, help="Only the last lines."),
    since: str = typer.Option(None, metavar="SPAN|TIME", help="Only what came since: 10m, or a time with its zone."),
    grep: str = typer.Option(None, metavar="REGEX", help="Only lines in which a regular expression is found."),
    times: bool = typer.Option(False, "-t", "--times", help="Each line with the time at which it came, in UTC."),
    raw: bool = typer.Option(False, "--raw", help="Only what was printed: no metrics, no marks of attempts."),
    output: OutputOption = OUTPUT,
) -> None:
    """Show what a job printed and what run.log recorded, in one stream; lines with --- mark starts and ends.

    Ctrl-C detaches; the job goes on. With --follow the exit code is 1 if the job failed. Of each process the newest
    120 MB are kept; if lines are gone, it says so.

    Examples:

      springtide logs -f

      springtide logs digits-cnn --all-ranks --times -n 50

      springtide logs digits-cnn --since 10m --grep 'loss=.*nan'
    """
    choice = choose_lines(() if all_ranks else (rank,), tail, since, grep, raw)
    with connect() as client:
        found = client.job(choose_job(client, job))
        ref = found.id
        try:
            lines = client.read_log(found, choice, follow)
            kept = list(lines) if output is OutputOption.JSON else []
            count = print_lines(show_lines(lines, times, all_ranks), follow) if not kept else len(kept)
            found = client.job(ref) if follow else found
        except KeyboardInterrupt:
            tell(f"\ndetached; {ref} goes on. Stop it with: springtide cancel {ref}")
            raise
    printed = "".join(f"{line.text}\n" for line in kept if line.kind == "output")
    told = [line.document for line in kept]
    output.write({"schema": 1, "job": ref, "state": found.state, "rank": rank, "text": printed, "lines": told})
    if not count:
        tell(f"nothing of {found.name} " + ("is found" if grep or since else "was printed or recorded yet"))
    if follow:
        tell(f"{found.name} {found.state}: {found.sentence}")
        raise typer.Exit(EXIT_CODES.get(found.state, 0))


def choose_lines(
    ranks: tuple[int, ...], tail: int | None, since: str | None, grep: str | None, raw: bool
) -> "LogChoice":
    """The lines that the options ask for."""
    from springtide.client.log_streams import LogChoice, LogKind

    since_s = None if since is None else read_since(since, time.time())
    return LogChoice(ranks, tail, since_s, grep, LogKind.OUTPUT if raw else None)


def read_since(text: str, now_s: float) -> float:
    """The time that a user means: a span back from now, or an instant."""
    from springtide.core.durations import is_instant, parse_instant, parse_span

    return parse_instant(text, "--since").timestamp() if is_instant(text) else now_s - parse_span(text, "--since")


def show_lines(lines: "Iterable[LogLine]", times: bool, ranks: bool) -> Iterator[str]:
    """Lines as text, with their time and rank on request."""
    for line in lines:
        at = "" if not times else f"{line.document['at'] or '-':<24} "
        rank = "" if not ranks else f"[{'-' if line.rank is None else line.rank}] "
        yield f"{at}{rank}{line.text}"


def print_lines(lines: Iterable[str], flush: bool) -> int:
    """Print lines, at once with `flush`, and count them; what a job wrote must not move a cursor in a terminal."""
    count, is_terminal = 0, sys.stdout.isatty()
    for line in lines:
        count += 1
        sys.stdout.write((clean_log(line) if is_terminal else line) + "\n")
        if flush:
            sys.stdout.flush()
    return count
