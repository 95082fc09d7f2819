"""`springtide ps`: the jobs there are."""

from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, OutputOption, print_table, show_seconds, show_time

if TYPE_CHECKING:
    from springtide.client.replies import JobInfo

HEADINGS = ("ID", "NAME", "STATE", "DEVICES", "STEP", "DEADLINE", "EXPECTED", "SLACK", "NOTES")


def run(
    everything: bool = typer.Option(False, "-a", "--all", help="Also jobs that have ended."),
    limit: int = typer.Option(100, min=1, max=1000, help="At most so many."),
    output: OutputOption = OUTPUT,
) -> None:
    """List jobs, newest first: the active ones, or with --all every one.

    Example:

      springtide ps --all
    """
    with connect() as client:
        jobs = client.jobs(everything, limit)
    if not output.write({"schema": 1, "jobs": [job.document for job in jobs]}):
        print_table(HEADINGS, map(show_row, jobs), "no active jobs; see the ended ones with: springtide ps --all")


def show_row(job: "JobInfo") -> tuple[str, ...]:
    """A job as one line."""
    return (
        job.id,
        job.name,
        job.state,
        str(job.share),
        f"{job.step}/{job.total_steps}" if job.total_steps else str(job.step),
        show_deadline(job),
        show_expected(job),
        show_slack(job),
        ", ".join(list_notes(job)),
    )


def show_deadline(job: "JobInfo") -> str:
    """The deadline as a span from now, or when there is none."""
    if job.best_effort:
        return "best effort"
    return show_time(job.deadline) if job.finished_at else show_from_now(job.deadline_in_s)


def show_from_now(seconds: float | None) -> str:
    """How far ahead or back a moment lies."""
    if seconds is None:
        return "-"
    return f"in {show_seconds(seconds)}" if seconds >= 0 else f"{show_seconds(-seconds)} ago"


def show_expected(job: "JobInfo") -> str:
    """When a job is expected to end; nobody can say of one that has ended, or is behind what was expected of it."""
    expected_s = job.predicted_finish_in_s
    is_open = job.finished_at is None and expected_s is not None and expected_s >= 0
    return show_from_now(expected_s) if is_open else "-"


def show_slack(job: "JobInfo") -> str:
    """Time between the end, expected or actual, and the deadline; a job that was declined has none."""
    return "-" if job.state in ("declined", "offered") else show_seconds(job.slack_s)


def list_notes(job: "JobInfo") -> list[str]:
    """What is worth knowing at a glance."""
    notes = [str(condition.kind) for condition in job.conditions]
    notes += ["late"] if job.missed else ["in time"] if job.met else []
    notes += [f"{job.faults} fault{'s' if job.faults != 1 else ''}"] if job.faults else []
    return notes + ([job.reason] if job.state in ("declined", "offered", "failed", "paused") else [])
