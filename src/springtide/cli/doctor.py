"""`springtide doctor`: check this machine and this installation."""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from shutil import disk_usage

import typer

from springtide.cli.outputs import JSON_FILE, OUTPUT, Form, Output, print_table, tell

OLDEST_PYTHON = (3, 11)
SELF_CHECK_S = 60.0
PASTE = "CUDA is written, but was not yet run by us: please paste the above into an issue, whatever it says"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: ok, warning or failed, what was seen, and what to do."""

    check: str
    status: str
    seen: str
    remedy: str = ""


def run(json_file: str = JSON_FILE, output: Output = OUTPUT) -> None:
    """Check Python, torch, devices, disk, state directory and server. Exit code 1 if something must be done.

    Where there are GPUs, each of them trains for a moment, twice, to see that the bits are the same.

    Example:

      springtide doctor
    """
    findings = list(look())
    failed = any(finding.status == "failed" for finding in findings)
    document = {"schema": 1, "ok": not failed, "findings": [asdict(finding) for finding in findings]}
    if not Form(output, json_file).write(document):
        print_table(
            ("CHECK", "STATUS", "SEEN", "WHAT TO DO"), ((f.check, f.status, f.seen, f.remedy) for f in findings)
        )
    raise typer.Exit(1 if failed else 0)


def look() -> Iterator[Finding]:
    """Everything that is checked, in order."""
    yield check_python()
    yield check_system()
    yield check_torch()
    yield from check_devices()
    yield from check_gpus()
    yield from check_home()
    yield check_server()


def check_python() -> Finding:
    """The version of Python."""
    seen = platform.python_version()
    if sys.version_info >= OLDEST_PYTHON:
        return Finding("python", "ok", seen)
    return Finding("python", "failed", seen, "install Python 3.11 or newer")


def check_system() -> Finding:
    """The operating system."""
    seen = f"{platform.system()} {platform.release()} ({platform.machine()})"
    if platform.system() == "Linux":
        return Finding("system", "ok", seen)
    if platform.system() == "Darwin":
        return Finding("system", "warning", seen, "simulate, plan and train work; serve needs Linux")
    return Finding("system", "failed", seen, "use Linux, or WSL2 on Windows")


def check_torch() -> Finding:
    """Whether jobs can train here."""
    from springtide.control.speeds import find_torch_version

    version = find_torch_version()
    if version:
        return Finding("torch", "ok", version)
    return Finding("torch", "failed", "not installed", "pip install 'springtide[train]'")


def check_devices() -> Iterator[Finding]:
    """What jobs would run on."""
    from springtide.executors.devices import discover

    found = discover()
    kinds = sorted({device.type for device in found.devices})
    yield Finding("devices", "ok", f"{len(found.devices)} x {', '.join(kinds)}")
    for note in found.notes:
        yield Finding("devices", "warning", note, "free the device, or repair the driver")


def check_gpus(device: str = "cuda") -> Iterator[Finding]:
    """What the GPUs do for a minute at most, tried in a process of its own; nothing where there are none."""
    from springtide.control.speeds import find_torch_version
    from springtide.executors.devices import discover

    if not find_torch_version() or not any(found.uuid for found in discover().devices):
        return
    command = [sys.executable, "-m", "springtide.training.selfchecks", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SELF_CHECK_S)
    except subprocess.TimeoutExpired:
        yield Finding("self-check", "failed", f"no answer within {SELF_CHECK_S:g} s", "see whether others use the GPUs")
        return
    for line in done.stdout.splitlines():
        told = json.loads(line)
        yield Finding(told["check"], "ok" if told["ok"] else "failed", told["seen"])
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        yield Finding("self-check", "failed", words[-1], "repair the driver, or install a torch built for it")
    tell(PASTE)


def check_home() -> Iterator[Finding]:
    """The state directory and the disk under it."""
    from springtide.control.homes import find_home
    from springtide.errors import StateError
    from springtide.training.disks import is_disk_low

    home = find_home()
    try:
        home.make()
    except StateError as error:
        yield Finding("state", "failed", str(home.root), str(error))
        return
    yield Finding("state", "ok", str(home.root))
    usage = disk_usage(home.root)
    seen = f"{usage.free / 1e9:.1f} GB of {usage.total / 1e9:.1f} GB free"
    if is_disk_low(home.root):
        yield Finding("disk", "warning", seen, "less than 5 % or 2 GB; free space: springtide du, springtide gc")
    else:
        yield Finding("disk", "ok", seen)


def check_server() -> Finding:
    """Whether a server answers, and lets us in."""
    from springtide.control.client import Client
    from springtide.errors import SpringtideError

    try:
        with Client() as client:
            told = client.server()
    except SpringtideError as error:
        return (
            Finding("server", "ok", "none runs", "submit starts one")
            if "no server" in str(error)
            else Finding("server", "failed", str(error))
        )
    return Finding("server", "ok", f"{client.url}, {told['devices']} devices, policy {told['policy']}")
