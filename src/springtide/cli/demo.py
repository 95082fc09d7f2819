"""`springtide demo`: the platform at work, in about two minutes, on this machine."""

import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from springtide.cli.option_groups import flatten
from springtide.cli.outputs import OutputForm, print_rich, show_seconds, show_time, tell, tell_legend
from springtide.errors import JobError

if TYPE_CHECKING:
    from rich.console import Group

    from springtide.cli.demo_scenario import DemoResult, DemoRun, Show
    from springtide.client.replies import DeviceInfo, JobInfo
    from springtide.control.storage.state_dir import StateDir
    from springtide.core.shared_types import Tell

SHOWN = ("name", "state", "promised", "promised_finish", "finished_at", "met", "rescales", "faults")
PREFIX = "springtide-demo-"
OVER = "demo-over"  # the file that says that a demo has ended, and its server waits for those who look
LINES = 12  # of what happened, shown under the live table


@flatten
def run(
    form: OutputForm,
    keep_open: bool = typer.Option(
        False, "--open", help="Open the board in a browser, and keep the server up afterwards until Ctrl-C."
    ),
) -> None:
    """Start the platform, submit real training jobs with deadlines, kill a worker, and prove the bits.

    A best-effort job has the machine to itself, then makes room for four jobs with deadlines, one of them impossible:
    it is declined with a counter-offer, which is accepted. Jobs shrink and grow as others come and go. Exit code 0
    only if every promise was kept and every model equals, bit for bit, the one of an undisturbed run.

    It ends with the address of the board, on which everything that ran can be looked at: the server of the demo stays
    up in the background, in a folder of its own, until it is stopped or the next demo begins.

    Examples:

      springtide demo

      springtide demo --open
    """
    from springtide.cli.demo_scenario import DemoRun
    from springtide.control.scheduling.speeds import find_torch_version

    if not find_torch_version():
        raise JobError(
            "torch is not installed; pip install 'springtide[train]', or see the scheduler alone: "
            "springtide simulate --synthetic jobs=200,gap=600 --policy fifo,edf,elasticflow,springtide"
        )
    started_s = time.monotonic()
    with open_demo(keep_open) as home:
        with open_screen() as (say, show):
            demo = DemoRun(home, say, show)
            results = demo.run()
        good = tell_results(results, demo, form, started_s)
        if keep_open:
            stay_open(demo)
        else:
            (home.root / OVER).touch()
            tell_board(home.root, demo.client.make_link(), tell if form.is_document else print)
    raise typer.Exit(0 if good else 1)


def tell_results(results: list["DemoResult"], demo: "DemoRun", form: OutputForm, started_s: float) -> bool:
    """Say how it went; returns whether all went well."""
    good = all(result.kept and result.equal for result in results)
    if not form.write(write_document(results, good, demo)):
        print_results(results)
        print(tell_outcome(results, demo))
        print(
            f"{'every promise kept, every bit equal' if good else 'NOT all good'}; {time.monotonic() - started_s:.0f} s"
        )
        print(tell_next())
    return good


def find_command() -> Path:
    """This command as it can be typed in this shell: by its name, or by where it is."""
    own = Path(sys.executable).with_name("springtide")
    if shutil.which("springtide") == str(own):
        return Path("springtide")
    return own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own


def tell_next() -> str:
    """The next command to type, by a path that works in this shell."""
    place = find_command()
    active = "" if place == Path("springtide") else f"source {place.parent / 'activate'} && "
    return f"next: {active}springtide new hello && cd hello && springtide submit job.yaml"


def tell_board(home: Path, link: str, say: "Tell") -> None:
    """Say as the last thing where the board of what ran is, and how its server is found again and ended."""
    others = [f"-u {name}" for name in ("SPRINGTIDE_URL", "SPRINGTIDE_TOKEN") if name in os.environ]
    environment = " ".join(["env", *others, ""] if others else [])
    command = f"{environment}SPRINGTIDE_HOME={shlex.quote(str(home))} {find_command()}"
    say(f"the board stays up; open it again with: {command} ui")
    say(f"end it with: {command} stop")
    say(f"look at what ran (this link signs you in once, within ten minutes): {link}")


def stay_open(demo: "DemoRun") -> None:
    """Keep the server, and with it the board, until Ctrl-C."""
    tell(f"the board stays open at {demo.client.make_link()} (signed in once, within ten minutes); Ctrl-C ends it")
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(1.0)


def tell_outcome(results: list["DemoResult"], demo: "DemoRun") -> str:
    """What the jobs went through, in a sentence."""
    faults = sum(result.job.faults for result in results)
    changes = {"grew": "grows", "shrank": "shrinks", "moved": "moves"}
    told = [f"{verb} {count_times(demo.rescales[kind])}" for verb, kind in changes.items() if demo.rescales[kind]]
    resized = f"jobs {' and '.join(told)}" if told else "NO job was resized this time: each ended before another came"
    return f"{resized}; workers were lost {count_times(faults)}"


def count_times(count: int) -> str:
    """So often, in words."""
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


@contextmanager
def open_demo(browser: bool = False) -> Iterator["StateDir"]:
    """A server of its own in a temporary state directory.

    Both are there afterwards, to be looked at; and gone if that was done in a browser already, or the demo broke off.
    """
    from springtide.cli.demo_scenario import choose_devices
    from springtide.control.background import start_background
    from springtide.control.storage.state_dir import StateDir

    clear_earlier(Path(tempfile.gettempdir()))
    devices, folder = choose_devices(), Path(tempfile.mkdtemp(prefix=PREFIX))
    home, stays = StateDir(folder / "state"), False
    try:
        tell("starting the platform in a temporary directory")
        url = start_background(home, ("--devices", str(devices), "--port", "0"))
        tell(f"springtide at {url} with {devices} devices")
        show_board(home, browser)
        yield home
        stays = not browser
    finally:
        if not stays:
            clear(folder)


def clear_earlier(place: Path) -> None:
    """End what earlier demos of this user have left to be looked at."""
    for mark in place.glob(f"{PREFIX}*/state/{OVER}"):
        folder = mark.parents[1]
        if folder.lstat().st_uid == os.getuid():
            tell(f"ending the board of an earlier demo, in {folder}")
            clear(folder)


def clear(folder: Path) -> None:
    """End the server of a demo with everything it started, and remove its folder."""
    from springtide.control.storage.state_dir import StateDir

    stop(StateDir(folder / "state"))
    shutil.rmtree(folder, ignore_errors=True)


def show_board(home: "StateDir", browser: bool) -> None:
    """Say where the board of the demo is, and open it if that was asked."""
    from springtide.cli.ui import open_browser
    from springtide.client.client import Client

    with Client(home=home.root) as client:
        link = client.make_link()
    tell(f"watch it in a browser: {link}")
    if browser:
        open_browser(link)


def stop(home: "StateDir") -> None:
    """End the server of the demo and everything it started."""
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
        executor = LocalExecutor(home.root)
        if executor.is_up:
            executor.shutdown()
        return
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

        def show(jobs: "list[JobInfo]", devices: "list[DeviceInfo]") -> None:
            live.update(draw(jobs, devices, said))

        yield said.append, show


def draw(jobs: "list[JobInfo]", devices: "list[DeviceInfo]", said: list[str]) -> "Group":
    """Devices, jobs, and the last things that were said."""
    from rich.console import Group
    from rich.text import Text

    from springtide.cli.job_table import draw_jobs

    return Group(draw_jobs(jobs, devices), Text(""), *(Text(line, style="dim") for line in said[-LINES:]))


def print_results(results: list["DemoResult"]) -> None:
    """The final table: promised, finished, rescales, faults, and whether the bits are equal."""
    from rich.table import Table

    headings = ("job", "promised by", "finished", "rescales", "faults", "bits equal to an undisturbed run")
    table = Table(*headings, title="what was promised, and what came")
    for result in results:
        job = result.job
        table.add_row(
            job.name,
            show_time(job.promised_finish) if job.promised_finish else "best effort",
            show_finish(job),
            str(job.rescales),
            str(job.faults),
            "yes" if result.equal else "NO",
        )
    print_rich(table)
    tell_legend("rescales: changes of devices while it ran; faults: processes that were killed on purpose")


def show_finish(job: "JobInfo") -> str:
    """When a job ended, relative to its promise."""
    if job.state != "succeeded":
        return str(job.state)
    if not job.promised or job.slack_s is None:
        return show_time(job.finished_at)
    early_s = job.slack_s
    return f"{show_seconds(early_s)} early" if early_s >= 0 else f"{show_seconds(-early_s)} LATE"


def write_document(results: list["DemoResult"], good: bool, demo: "DemoRun") -> dict[str, Any]:
    """The result as JSON."""
    listed = [
        {**{name: result.job.document[name] for name in SHOWN}, "bits_equal": result.equal, "sha256": result.digest}
        for result in results
    ]
    return {
        "schema": 1,
        "ok": good,
        "home": str(demo.home.root),
        "worker_killed": demo.killed,
        "offers_accepted": demo.offered,
        "rescales": {kind: demo.rescales[kind] for kind in ("grows", "shrinks", "moves")},
        "jobs": listed,
    }
