"""`springtide demo`: the platform at work, in about two minutes, on this machine."""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from springtide.cli.outputs import JSON_FILE, OUTPUT, WIDE, OutputForm, OutputOption, show_seconds, tell
from springtide.errors import JobError

if TYPE_CHECKING:
    from rich.console import Group

    from springtide.cli.demo_scenario import Ending, Play, Show, Tell

LINES = 12  # of what happened, shown under the live table


def run(
    simulated: bool = typer.Option(False, "--simulated", help="Only compare policies in a simulated cluster."),
    json_file: str = JSON_FILE,
    output: OutputOption = OUTPUT,
) -> None:
    """Start the platform, submit real training jobs with deadlines, kill a worker, and prove the bits.

    A best-effort job has the machine to itself, then makes room for four jobs with deadlines, one of them impossible:
    it is declined with a counter-offer, which is accepted. Jobs shrink and grow as others come and go. Exit code 0
    only if every promise was kept and every model equals, bit for bit, the one of an undisturbed run.

    Examples:

      springtide demo

      springtide demo --simulated
    """
    form = OutputForm(output, json_file)
    if simulated:
        show_simulation(form)
        return
    from springtide.control.scheduling.speeds import find_torch_version

    if not find_torch_version():
        raise JobError("torch is not installed; pip install 'springtide[train]', or try: springtide demo --simulated")
    started_s = time.monotonic()
    with open_play() as play:
        endings = play.perform()
    good = all(ending.kept and ending.equal for ending in endings)
    if not form.write(write_document(endings, good, play)):
        print_endings(endings)
        print(tell_outcome(endings, play))
        print(
            f"{'every promise kept, every bit equal' if good else 'NOT all good'}; {time.monotonic() - started_s:.0f} s"
        )
    raise typer.Exit(0 if good else 1)


def tell_outcome(endings: list["Ending"], play: "Play") -> str:
    """What the jobs went through, in a sentence."""
    faults = sum(ending.job["faults"] for ending in endings)
    changes = {"grew": "grows", "shrank": "shrinks", "moved": "moves"}
    told = [f"{verb} {count_times(play.rescales[kind])}" for verb, kind in changes.items() if play.rescales[kind]]
    resized = f"jobs {' and '.join(told)}" if told else "NO job was resized this time: each ended before another came"
    return f"{resized}; workers were lost {count_times(faults)}"


def count_times(count: int) -> str:
    """So often, in words."""
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def show_simulation(form: OutputForm) -> None:
    """The same policies on a virtual clock."""
    from springtide.cli.demo_simulation import print_reports, simulate_demo

    reports = simulate_demo()
    if not form.write({"schema": 1, "runs": [report.to_json() for report in reports]}):
        print_reports(reports)


@contextmanager
def open_play() -> Iterator["Play"]:
    """A play on a server of its own in a temporary state directory; both are gone afterwards."""
    from springtide.cli.demo_scenario import Play, choose_devices
    from springtide.control.server import start_background
    from springtide.control.storage.state_dir import StateDir

    devices = choose_devices()
    with tempfile.TemporaryDirectory(prefix="springtide-demo-", ignore_cleanup_errors=True) as folder:
        home = StateDir(Path(folder) / "state")
        tell("starting the platform in a temporary directory")
        url = start_background(home, ("--devices", str(devices), "--port", "0"))
        tell(f"springtide at {url} with {devices} devices")
        try:
            with open_screen() as (say, show):
                yield Play(home, say, show)
        finally:
            stop(home)


def stop(home: Any) -> None:
    """End the server of the play and everything it started."""
    from springtide.cli.stop import wait_for_end
    from springtide.client.client import Client
    from springtide.control.storage.state_dir import read_address
    from springtide.errors import ServerError
    from springtide.executors.local.executor import LocalExecutor

    address = read_address(home)
    try:
        with Client(home=home.root) as client:
            client.stop()
    except ServerError:
        LocalExecutor(home.root).shutdown()
    if address is not None:
        wait_for_end(home, int(address["pid"]))


@contextmanager
def open_screen() -> Iterator[tuple["Tell", "Show"]]:
    """A live table on a terminal; elsewhere, sentences on stderr as they come."""
    if not sys.stdout.isatty():
        yield tell, lambda jobs, devices: None
        return
    from rich.live import Live

    said: list[str] = []
    with Live(refresh_per_second=4) as live:

        def show(jobs: list[dict[str, Any]], devices: list[dict[str, Any]]) -> None:
            live.update(draw(jobs, devices, said))

        yield said.append, show


def draw(jobs: list[dict[str, Any]], devices: list[dict[str, Any]], said: list[str]) -> "Group":
    """Devices, jobs, and the last things that were said."""
    from rich.console import Group
    from rich.text import Text

    from springtide.cli.top import draw as draw_top

    return Group(draw_top(jobs, devices), Text(""), *(Text(line, style="dim") for line in said[-LINES:]))


def print_endings(endings: list["Ending"]) -> None:
    """The final table: promised, finished, rescales, faults, and whether the bits are equal."""
    from rich.console import Console
    from rich.table import Table

    headings = ("job", "promised by", "finished", "rescales", "faults", "bits equal to an undisturbed run")
    table = Table(*headings, title="what was promised, and what came")
    for ending in endings:
        job = ending.job
        table.add_row(
            job["name"],
            job["promised_finish"] or "best effort",
            show_finish(job),
            str(job["rescales"]),
            str(job["faults"]),
            "yes" if ending.equal else "NO",
        )
    Console(width=None if sys.stdout.isatty() else WIDE, highlight=False).print(table)


def show_finish(job: dict[str, Any]) -> str:
    """When a job ended, relative to its promise."""
    if job["state"] != "succeeded":
        return str(job["state"])
    if not job["promised"]:
        return str(job["finished_at"])
    early_s = job["slack_s"]
    return f"{show_seconds(early_s)} early" if early_s >= 0 else f"{show_seconds(-early_s)} LATE"


def write_document(endings: list["Ending"], good: bool, play: "Play") -> dict[str, Any]:
    """The result as JSON."""
    listed = [
        {
            "name": ending.job["name"],
            "state": ending.job["state"],
            "promised": ending.job["promised"],
            "promised_finish": ending.job["promised_finish"],
            "finished_at": ending.job["finished_at"],
            "met": ending.job["met"],
            "rescales": ending.job["rescales"],
            "faults": ending.job["faults"],
            "bits_equal": ending.equal,
            "sha256": ending.digest,
        }
        for ending in endings
    ]
    return {
        "schema": 1,
        "ok": good,
        "worker_killed": play.killed,
        "offers_accepted": play.offered,
        "rescales": {kind: play.rescales[kind] for kind in ("grows", "shrinks", "moves")},
        "jobs": listed,
    }
