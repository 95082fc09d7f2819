"""`springtide ps` and `top`: jobs as a table, with as many columns as fit; names are never cut."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from springtide.cli.array_rows import count_states, find_latest, find_tightest, group_arrays, sum_steps, tell_size
from springtide.cli.connections import connect
from springtide.cli.job_views import list_notes, show_deadline, show_expected, show_slack
from springtide.cli.option_groups import flatten, option
from springtide.cli.outputs import (
    OUTPUT,
    OutputOption,
    clean,
    explain_headings,
    find_width,
    print_fitting,
    print_rich,
    show_seconds,
    show_time,
    tell,
)
from springtide.cli.text_tables import TextTable
from springtide.errors import InputError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from springtide.client.client import Client
    from springtide.client.replies import DeviceInfo, JobInfo

LEGEND = {
    "DEADLINE": "from now",
    "EXPECTED": "its end, from now",
    "SLACK": "between the expected end and the deadline",
    "PLAN": "the next changes of devices",
    "PAUSE": "time lost to rescales/how many",
    "USD": "what its devices have cost so far",
}
MOST_PER_PAGE = 1000  # that a server answers with
NOTES = ("standstill", "outage")  # what a server says of itself, for all who wait


class JobTableForm(StrEnum):
    """Forms of `ps`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


class JobOrder(StrEnum):
    """What jobs are listed by; the first is the newest first."""

    SUBMITTED = "submitted"
    NAME = "name"
    USER = "user"
    STATE = "state"
    DEADLINE = "deadline"
    SLACK = "slack"
    DEVICES = "devices"


@dataclass(frozen=True, slots=True)
class JobColumn:
    """A column: its heading, what it shows, and how much it matters where there is little room (1: most)."""

    heading: str
    show: "Callable[[JobInfo], str]"
    rank: int
    #: What it shows of an array.
    show_array: "Callable[[Sequence[JobInfo]], str]" = lambda jobs: "-"

    def write(self, line: "Sequence[JobInfo]") -> str:
        """The cell of a line: of one job, or of an array."""
        return self.show(line[0]) if line[0].array is None else self.show_array(line)


def show_step(job: "JobInfo") -> str:
    """How far a job is."""
    return f"{job.step}/{job.total_steps}" if job.total_steps else str(job.step)


def show_plan(job: "JobInfo") -> str:
    """The changes of devices that are planned next."""
    coming = [segment for segment in job.plan if segment.start_in_s > 0]
    return ", ".join(f"{one.share} in {show_seconds(one.start_in_s)}" for one in coming[:2]) or "-"


def show_pause(job: "JobInfo") -> str:
    """How long rescales have held a job up."""
    return f"{show_seconds(job.pause_s)}/{job.rescales}" if job.rescales else "-"


def show_cost(job: "JobInfo") -> str:
    """What a job has cost so far, where devices have a price."""
    return show_usd([job.cost_usd])


def show_usd(costs: Iterable[float | None]) -> str:
    """A sum of dollars, of those that are known."""
    known = [cost for cost in costs if cost is not None]
    return f"{sum(known):.2f}" if known else "-"


def show_labels(job: "JobInfo") -> str:
    """The labels of a job's file."""
    return ",".join(f"{name}={value}" for name, value in sorted(find_labels(job).items())) or "-"


def find_labels(job: "JobInfo") -> dict[str, str]:
    """The words that a job is found by."""
    return dict(job.spec.get("labels", {}))


COLUMNS = (
    JobColumn("ID", lambda job: job.id, 7, lambda jobs: jobs[0].array.id if jobs[0].array else "-"),
    JobColumn("NAME", lambda job: job.name, 1, lambda jobs: jobs[0].array.name if jobs[0].array else "-"),
    JobColumn("USER", lambda job: job.user, 8, lambda jobs: jobs[0].user),
    JobColumn("STATE", lambda job: str(job.state), 2, count_states),
    JobColumn("DEVICES", lambda job: str(job.share), 4, lambda jobs: str(sum(job.share for job in jobs))),
    JobColumn("STEP", show_step, 5, sum_steps),
    JobColumn("DEADLINE", show_deadline, 6, lambda jobs: show_deadline(find_latest(jobs))),
    JobColumn("EXPECTED", show_expected, 9, lambda jobs: show_expected(find_latest(jobs))),
    JobColumn("SLACK", show_slack, 3, lambda jobs: show_slack(find_tightest(jobs))),
    JobColumn("NOTES", lambda job: ", ".join(list_notes(job)), 10, tell_size),
)
#: Where devices have a price.
COST = JobColumn("USD", show_cost, 11, lambda jobs: show_usd([job.cost_usd for job in jobs]))
LAST = (
    COST,
    JobColumn("LABELS", show_labels, 11, lambda jobs: show_labels(jobs[0])),
    JobColumn("SUBMITTED", lambda job: show_time(job.submitted_at), 12, lambda jobs: show_time(jobs[0].submitted_at)),
    JobColumn("WEIGHTS (SHA-256)", lambda job: job.weights_sha256 or "-", 13),
)
TOP = (
    *(column for column in COLUMNS if column.heading in ("NAME", "STATE", "DEVICES", "STEP", "DEADLINE", "SLACK")),
    JobColumn("PLAN", show_plan, 7),
    JobColumn("PAUSE", show_pause, 8),
    *(column for column in COLUMNS if column.heading in ("EXPECTED", "NOTES")),
)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs, as a group of options; `ps` and `cancel` share it."""

    user: str | None = option(None, "Only jobs of this user.", metavar="NAME")
    state: list[str] = option([], "Only jobs in this state. Repeat for more.", metavar="STATE")
    label: list[str] = option([], "Only jobs with this label. Repeat for more.", metavar="NAME=VALUE")

    def check(self) -> None:
        """Refuse what no job can match."""
        from springtide.core.job_states import JobState

        for state in self.state:
            if state not in set(JobState):
                raise InputError(f"--state {state!r} is not a state of a job; there are: {', '.join(JobState)}")
        for label in self.label:
            if "=" not in label:
                raise InputError(f"--label {label!r} has no value; write it as NAME=VALUE, as in team=vision")

    def matches(self, job: "JobInfo") -> bool:
        """Whether a job is one of them."""
        wanted = dict(label.split("=", 1) for label in self.label)
        return (
            (self.user is None or job.user == self.user)
            and (not self.state or job.state in self.state)
            and wanted.items() <= find_labels(job).items()
        )

    def find(self, client: "Client", everything: bool, limit: int | None) -> "list[JobInfo]":
        """The jobs that match, newest first; all of them where there is no limit."""
        from springtide.core.job_states import ACTIVE

        self.check()
        states = self.state or ([] if everything else sorted(ACTIVE))
        page = limit if limit is not None and not self.label else MOST_PER_PAGE
        return list(islice(filter(self.matches, client.each_job(states, self.user, page)), limit))

    def tell_none(self, everything: bool) -> str:
        """What to say where no job matches."""
        if self != JobFilter():
            return "no such jobs"
        if everything:
            return "there are no jobs yet; submit one with: springtide submit job.yaml"
        return "no active jobs; see the ended ones with: springtide ps --all"


def sort_jobs(jobs: "Iterable[JobInfo]", by: JobOrder) -> "list[JobInfo]":
    """Jobs by what is asked for; those without it come last."""
    listed = list(jobs)
    keys: dict[JobOrder, Callable[[JobInfo], Any]] = {
        JobOrder.SUBMITTED: lambda job: -job.submitted_at.timestamp(),
        JobOrder.NAME: lambda job: job.name,
        JobOrder.USER: lambda job: job.user,
        JobOrder.STATE: lambda job: str(job.state),
        JobOrder.DEADLINE: lambda job: (job.deadline is None, job.deadline and job.deadline.timestamp()),
        JobOrder.SLACK: lambda job: (job.slack_s is None, job.slack_s),
        JobOrder.DEVICES: lambda job: -job.share,
    }
    return sorted(listed, key=keys[by])


@flatten
def ps(
    everything: bool = typer.Option(False, "-a", "--all", help="Also jobs that have ended."),
    limit: int = typer.Option(100, min=1, max=1000, help="List at most this many."),
    chosen: JobFilter = JobFilter(),  # noqa: B008
    sort: JobOrder = typer.Option(JobOrder.SUBMITTED, help="Sort by."),
    watch: float = typer.Option(
        None, "-w", "--watch", min=0.1, metavar="SECONDS", help="Refresh at this interval, until Ctrl-C."
    ),
    output: JobTableForm = typer.Option(JobTableForm.TABLE, "-o", "--output", help="Form; wide has every column."),
) -> None:
    """List jobs, newest first: the active ones, or with --all every one. A narrow terminal gets fewer columns.

    Examples:

      springtide ps --all --user ann --label team=vision

      springtide ps --sort slack --watch 2

      springtide ps -a -o wide
    """
    chosen.check()
    wide, empty = output is JobTableForm.WIDE, chosen.tell_none(everything)
    with connect() as client:

        def look() -> JobsSeen:
            server = client.server().document
            jobs = sort_jobs(chosen.find(client, everything, limit), sort)
            return JobsSeen(jobs, {key: server.get(key) for key in NOTES})

        if watch is not None and output is not JobTableForm.JSON:
            watch_jobs(lambda: draw_seen(look(), wide, empty), watch)
        seen = look()
    documents = {"schema": 1, "jobs": [job.document for job in seen.jobs], **seen.notes}
    if not (output is JobTableForm.JSON and OutputOption.JSON.write(documents)):
        print_jobs(seen.jobs, wide, empty)
        for note in filter(None, seen.notes.values()):
            tell(note)


@dataclass(frozen=True, slots=True)
class JobsSeen:
    """Jobs at one look, and what the server says of itself."""

    jobs: "list[JobInfo]"
    notes: Mapping[str, str | None]


def print_jobs(jobs: "Sequence[JobInfo]", wide: bool, empty: str) -> None:
    """Jobs on stdout, and under them what the columns mean; `empty` where there are none."""
    if not jobs:
        print(empty)
        return
    if wide:
        print_fitting(make_table([*COLUMNS, *LAST], jobs), LEGEND, width=sys.maxsize)
    else:
        print_fitting(make_table(choose_columns(jobs), jobs), LEGEND, more="springtide ps -o wide")


def choose_columns(jobs: "Iterable[JobInfo]") -> Sequence[JobColumn]:
    """The columns of `ps`; with money where devices have a price."""
    return COLUMNS if all(job.cost_usd is None for job in jobs) else (*COLUMNS, COST)


def make_table(columns: Sequence[JobColumn], jobs: "Iterable[JobInfo]") -> TextTable:
    """Jobs as lines of a table, those of an array as one."""
    rows = [[column.write(line) for column in columns] for line in group_arrays(jobs)]
    return TextTable([column.heading for column in columns], rows, [column.rank for column in columns])


def watch_jobs(draw: "Callable[[], Text]", every_s: float) -> None:
    """The table again and again, until Ctrl-C."""
    from rich.live import Live

    with Live(draw(), refresh_per_second=4, screen=sys.stdout.isatty()) as live:
        while True:
            time.sleep(every_s)
            live.update(draw())


def draw_seen(seen: JobsSeen, wide: bool, empty: str) -> "Text":
    """One look at jobs: the table, what its columns mean, and what the server says of itself."""
    from rich.text import Text

    notes = [Text(clean(note), style="yellow") for note in seen.notes.values() if note]
    if not seen.jobs:
        return Text("\n").join([Text(empty), *notes])
    columns = [*COLUMNS, *LAST] if wide else choose_columns(seen.jobs)
    width = sys.maxsize if wide else find_width()
    legend = explain_headings(LEGEND, make_table(columns, seen.jobs).fit(width).headings)
    return Text("\n").join([draw_table(seen.jobs, columns, width), Text(legend, style="dim"), *notes])


def draw_table(jobs: "Sequence[JobInfo]", columns: Sequence[JobColumn], width: int | None = None) -> "Text":
    """The columns of jobs for which there is room."""
    from rich.text import Text

    headings, *lines = make_table(columns, jobs).fit(find_width() if width is None else width).draw()
    return Text("\n").join([Text(headings, style="bold"), *(Text(clean(line)) for line in lines)])


def top(
    every: float = typer.Option(1.0, min=0.1, help="Seconds between looks."),
    once: bool = typer.Option(False, "--once", help="Look once and end; also where stdout is not a terminal."),
    output: OutputOption = OUTPUT,
) -> None:
    """Watch jobs and devices until Ctrl-C: slack, the next planned devices, and how long rescales have paused each.

    Example:

      springtide top
    """
    from rich.live import Live

    with connect() as client:
        jobs, devices = client.jobs(), client.devices()
        if output.write(
            {"schema": 1, "jobs": [one.document for one in jobs], "devices": [one.document for one in devices]}
        ):
            return
        if once or not sys.stdout.isatty():
            print_rich(draw_jobs(jobs, devices))
            return
        with Live(draw_jobs(jobs, devices), refresh_per_second=4) as live:
            while True:
                time.sleep(every)
                live.update(draw_jobs(client.jobs(), client.devices()))


def draw_jobs(jobs: "list[JobInfo]", devices: "list[DeviceInfo]") -> "Group":
    """Devices as a line of who holds them, then the jobs, then what the columns mean."""
    from rich.console import Group
    from rich.text import Text

    held = sum(device.job_name is not None for device in devices)
    line = Text(f"{held} of {len(devices)} devices held: ")
    for device in devices:
        line.append(f"[{device.job_name or '-'}] ", style="green" if device.job_name else "dim")
    legend = explain_headings(LEGEND, make_table(TOP, jobs).fit(find_width()).headings)
    return Group(line, draw_table(jobs, TOP), Text(legend, style="dim"))
