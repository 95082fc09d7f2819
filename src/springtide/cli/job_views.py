"""`springtide status`, `why` and `events`: the verbs that show one job and change nothing."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import choose_job, complete_job, connect
from springtide.cli.outputs import (
    OUTPUT,
    OutputOption,
    count_devices,
    list_rent,
    print_told,
    say,
    show_seconds,
    show_time,
    tell,
)
from springtide.cli.text_tables import TextTable

if TYPE_CHECKING:
    from springtide.client.replies import EventInfo, JobInfo, WhyInfo

FOLLOW_S = 0.5
MOST_NAMES = 1000
JOB = typer.Argument(
    None, metavar="[JOB]", help="An id, a name or its beginning. Default: the newest.", autocompletion=complete_job
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
    notes += ["not promised"] if is_unpromised(job) else []
    notes += [f"{job.faults} fault{'s' if job.faults != 1 else ''}"] if job.faults else []
    return notes + ([job.reason] if job.state in ("declined", "offered", "failed", "paused") else [])


def is_unpromised(job: "JobInfo") -> bool:
    """Whether a job was admitted with a deadline that nobody promised it."""
    admitted = job.state in ("admitted", "running", "succeeded", "failed")
    return admitted and not job.best_effort and not job.promised


def status(job: str = JOB, output: OutputOption = OUTPUT) -> None:
    """Show one job: its answer, progress, plan, conditions and offers.

    Example:

      springtide status digits-cnn
    """
    with connect() as client:
        found = client.job(choose_job(client, job))
        outage = client.server().document.get("outage")
    if not output.write(found.document):
        print_job(found)
        if outage:
            tell(str(outage))


def print_job(job: "JobInfo") -> None:
    """A job as a list of facts; those that say nothing yet, as no faults and no end, are left out."""
    say(f"{job.name} ({job.id}) of {job.user}: {job.state}")
    if job.sentence:
        say(f"  {job.sentence}")
    unpromised = " (not promised)" if is_unpromised(job) else ""
    facts = {
        "progress": f"step {job.step}" + (f" of {job.total_steps}" if job.total_steps else ""),
        "devices": ", ".join(job.devices) or "none now",
        "deadline": "none: best effort" if job.best_effort else show_time(job.deadline) + unpromised,
        "expected": show_time(job.predicted_finish),
        "slack": show_slack(job),
        "finished": show_time(job.finished_at),
        "rescales": f"{job.rescales} (paused {show_seconds(job.pause_s)} in all)" if job.rescales else "-",
        "faults": f"{job.faults} ({job.lost_steps} steps done twice)" if job.faults or job.lost_steps else "-",
        "used": tell_used(job),
        "weights": f"SHA-256 {job.weights_sha256}" if job.weights_sha256 else "none yet",
        "files": find_files(job.id),
    }
    for name, value in facts.items():
        if value != "-":
            say(f"  {name:<10} {value}")
    for segment in job.plan:
        say(f"  plan       from {show_time(segment.start)}: {count_devices(segment.share)}")
    for condition in job.conditions:
        say(f"  {condition.kind}: {condition.sentence}")
    for offer in job.offers:
        say(f"  offer {offer.id} ({offer.state}): {offer.sentence}")
    for line in list_rent(job.rent):
        say(f"  {line}")


def tell_used(job: "JobInfo") -> str:
    """What a job has taken of its devices, and what that cost where they have a price."""
    if not job.device_s:
        return "-"
    return f"{job.device_s:.1f} device-seconds" + ("" if job.cost_usd is None else f", {job.cost_usd:.2f} USD")


def find_files(job_id: str) -> str:
    """Where a job's checkpoints, output and logs lie, if they lie on this machine."""
    from springtide.control.storage.state_dir import find_home

    folder = find_home().job_folder(job_id)
    return str(folder) if folder.is_dir() else "on the server's machine"


def why(job: str = JOB, output: OutputOption = OUTPUT) -> None:
    """Say why a job is where it is: waiting, running, in danger, declined or ended.

    Example:

      springtide why digits-cnn
    """
    with connect() as client:
        told = client.why(choose_job(client, job))
    if not output.write(told.document):
        print_explanation(told)


def print_explanation(told: "WhyInfo") -> None:
    """The sentence, the facts behind it, and what to do."""
    reason = f", {told.reason}" if told.reason not in ("", told.state) else ""
    say(f"{told.name} ({told.state}{reason}): {told.sentence}")
    for fact in (*told.facts, *list_rent(told.rent)):
        say(f"  - {fact}")
    if told.remedy:
        say(f"  try: {told.remedy}")


def events(
    job: str = typer.Argument(
        None,
        metavar="[JOB]",
        help="An id, a name or the beginning of one. Default: all jobs.",
        autocompletion=complete_job,
    ),
    follow: bool = typer.Option(False, "-f", "--follow", help="Go on until Ctrl-C."),
    output: OutputOption = OUTPUT,
) -> None:
    """Show decisions, rescales and faults, oldest first.

    Example:

      springtide events digits-cnn
    """
    with connect() as client:
        events = client.events(job)
        if output.write({"schema": 1, "events": [one.document for one in events]}):
            return
        names = {found.id: found.name for found in client.jobs(all=True, limit=MOST_NAMES)}
        show_events(events, names)
        last = events[-1].seq if events else 0
        while follow:
            time.sleep(FOLLOW_S)
            for one in client.events(job, last):
                say(f"{show_time(one.at)} {find_name(one, names)} {one.kind}: {one.sentence}")
                last = one.seq


def show_events(events: Sequence["EventInfo"], names: Mapping[str, str]) -> None:
    """What has happened, a row for each."""
    if not events:
        say("nothing has happened yet")
        return
    rows = [(show_time(one.at), find_name(one, names), one.kind) for one in events]
    table = TextTable(("AT", "JOB", "EVENT"), rows, ranks=(2, 1, 3))
    print_told(table, ["WHAT HAPPENED", *(one.sentence for one in events)])


def find_name(event: "EventInfo", names: Mapping[str, str]) -> str:
    """The name of the job that an event is about, its id where the name is not known, or a dash."""
    return "-" if event.job is None else names.get(event.job, event.job)
