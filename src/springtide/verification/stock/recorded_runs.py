"""Running any command with every Python process in it recorded, each run in a folder of its own."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from springtide.core.shared_types import Tell
from springtide.errors import JobError, TrainingError
from springtide.verification.scratch_folders import Scratch, make_scratch
from springtide.verification.stock.step_recordings import StepRecording, read_shim_files

SHIM = Path(__file__).parent / "shim"
TURN_S = 0.1
TELL_EVERY_S = 10.0
GRACE_S = 15.0
SHOWN_LINES = 15


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """How a command is recorded: digests after every so many steps, for so many steps (0: to its end)."""

    every: int = 1
    steps: int = 0
    #: Whether it runs where it was started instead of in a copy of that folder.
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class RecordedPlace:
    """Where a command runs, in which environment, and where its processes and the command itself write."""

    folder: Path
    variables: Mapping[str, str]
    lines: Path
    log: Path


def record(command: Sequence[str], options: RecordOptions, tell: Tell, environ: Mapping[str, str]) -> StepRecording:
    """The recording of one run of a command that was started in the current folder."""
    if shutil.which(command[0]) is None:
        raise JobError(f"command {command[0]!r} was not found; give what you would type to train, after --")
    with tempfile.TemporaryDirectory(prefix="springtide-stock-", ignore_cleanup_errors=True) as name:
        scratch = None if options.in_place else make_scratch(Path(name), (Path.cwd(),), environ)
        place = make_place(Path(name), options, scratch, environ)
        run_recorded(command, place, tell)
        recording = read_shim_files(place.lines, command, options.every)
        if not recording.ranks:
            raise JobError(explain_nothing(command))
        if scratch is not None:
            scratch.check()
        return recording


def explain_nothing(command: Sequence[str]) -> str:
    """Why a run without a recorded step cannot be compared."""
    return (
        f"no optimizer step was seen in `{shlex.join(command)}`; it must train with torch.optim, in processes that "
        "inherit its environment and read PYTHONPATH (no python -I, -E or -S, no container started from it)"
    )


def make_place(
    home: Path, options: RecordOptions, scratch: Scratch | None, environ: Mapping[str, str]
) -> RecordedPlace:
    """A place for a run: the environment as it is, with the shim first on PYTHONPATH, and folders of its own."""
    lines = home / "lines"
    lines.mkdir()
    python_path = [str(SHIM), *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    recorder = {
        "PYTHONPATH": os.pathsep.join(python_path),
        "SPRINGTIDE_STOCK_DIR": str(lines),
        "SPRINGTIDE_STOCK_EVERY": str(options.every),
        "SPRINGTIDE_STOCK_STEPS": str(options.steps),
    }
    own = scratch.variables() if scratch is not None else {}
    folder = scratch.folder if scratch is not None else Path.cwd()
    return RecordedPlace(folder, {**environ, **own, **recorder}, lines, home / "output.log")


def run_recorded(command: Sequence[str], place: RecordedPlace, tell: Tell) -> None:
    """Run a command to its end, or until every rank has taken the steps asked for; raise when it fails."""
    with place.log.open("wb") as output, start(command, place, output.fileno()) as process:
        told_s = time.monotonic()
        while process.poll() is None and not has_all_steps(place.lines):
            time.sleep(TURN_S)
            if time.monotonic() - told_s > TELL_EVERY_S:
                told_s = time.monotonic()
                tell(f"  {count_steps(place.lines)} steps so far")
        code = process.poll()
    if code:
        said = place.log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
        raise TrainingError(f"`{shlex.join(command)}` ended with code {code}:\n" + "\n".join(said))


@contextlib.contextmanager
def start(command: Sequence[str], place: RecordedPlace, output: int) -> Iterator["subprocess.Popen[bytes]"]:
    """The running command; what is left of it when it is no longer needed is ended."""
    process = subprocess.Popen(
        list(command),
        cwd=place.folder,
        env=dict(place.variables),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a command and what it has started, politely first: launchers end their workers when they are asked to."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)


def has_all_steps(lines: Path) -> bool:
    """Whether every rank has taken the steps that were asked for."""
    done = {marker.name.split("-")[1] for marker in lines.glob("done-*")}
    return bool(done) and len(done) >= read_ranks(lines)


def read_ranks(lines: Path) -> int:
    """The number of ranks, as the first process that recorded says."""
    file = min(lines.glob("*.jsonl"))
    with file.open(encoding="utf-8") as opened:
        return int(json.loads(opened.readline())["process"]["ranks"])


def count_steps(lines: Path) -> int:
    """Steps recorded so far by the process that has most."""
    counts = (file.read_bytes().count(b'"digests"') for file in lines.glob("*.jsonl"))
    return max(counts, default=0)
