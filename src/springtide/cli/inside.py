"""`springtide shell`, `exec` and `stack`: inside a running job, on its machine and as its user.

The server only says where the job works; what is run here is run with the rights of who calls.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import choose_job, connect
from springtide.cli.outputs import OUTPUT, OutputOption, clean_log, say, tell
from springtide.errors import InputError

if TYPE_CHECKING:
    from springtide.client.replies import InsideInfo

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}
KEPT = ("TERM", "COLORTERM", "LC_ALL")
JOB = typer.Argument(None, metavar="[JOB]", help="An id, a name or its beginning. Default: the newest.")


def shell(job: str = JOB) -> None:
    """Open a terminal in a running job's folder, with its variables and secrets, as the user it runs as.

    Example:

      springtide shell digits-cnn
    """
    inside = look(job, "shell")
    program = os.environ.get("SHELL") or "/bin/sh"
    tell(f"in {inside.folder} of {inside.name}; the job goes on. Leave with: exit")
    raise typer.Exit(run_inside(inside, [program]))


def execute(
    job: str = typer.Argument(metavar="JOB", help="An id, a name or the beginning of one."),
    command: list[str] = typer.Argument(metavar="-- COMMAND...", help="What to run."),
) -> None:
    """Run a command in a running job's folder, with its variables and secrets, as the user it runs as.

    The exit code is the command's.

    Examples:

      springtide exec digits-cnn -- ls -la

      springtide exec digits-cnn -- python -c 'import torch; print(torch.__version__)'
    """
    words = command[1:] if command[:1] == ["--"] else command
    raise typer.Exit(run_inside(look(job, "exec"), words))


def stack(
    job: str = JOB,
    native: bool = typer.Option(False, "--native", help="With the frames of C code."),
    output: OutputOption = OUTPUT,
) -> None:
    """Show where each process of a running job is in its code now. Needs py-spy: pip install 'springtide[stack]'.

    Example:

      springtide stack digits-cnn
    """
    inside = look(job, "stack")
    if not inside.pids:
        raise InputError(f"{inside.name} has no process yet; try again in a moment")
    command = [find_spy(), "dump", *(["--native"] if native else []), "--pid"]
    found = [(pid, subprocess.run([*command, str(pid)], capture_output=True, text=True)) for pid in inside.pids]
    if all(done.returncode for _, done in found):
        told = found[0][1].stderr.strip()
        raise InputError(
            f"py-spy cannot look at {inside.name} ({told}); as root it may: sudo springtide stack {inside.name}"
        )
    documents = [{"pid": pid, "stack": done.stdout, "error": done.stderr or None} for pid, done in found]
    if not output.write({"schema": 1, "job": inside.job, "processes": documents}):
        for pid, done in found:
            say(f"--- process {pid}")
            print(clean_log(done.stdout or done.stderr), end="")


def find_spy() -> str:
    """The program that reads stacks."""
    found = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise InputError("stacks are read by py-spy, which is not installed; pip install 'springtide[stack]'")
    return found


def look(job: str | None, verb: str) -> "InsideInfo":
    """A running job on this machine, whose user this process is or can become."""
    with connect() as client:
        inside = client.inside(choose_job(client, job))
    if inside.host != socket.gethostname():
        there = f"ssh {inside.host} springtide {verb} {inside.name}"
        raise InputError(f"{inside.name} runs on {inside.host}; go there: {there}")
    check_user(inside, verb, os.geteuid())
    return inside


def check_user(inside: "InsideInfo", verb: str, uid: int) -> None:
    """Refuse who is not the user of a job's processes, and cannot become it."""
    from springtide.executors.local.as_user import find_user

    wanted = inside.uid if inside.run_as is None else find_user(inside.run_as).uid
    if uid not in (0, wanted):
        name = inside.run_as or f"#{inside.uid}"
        command = f"sudo -u {name} springtide {verb} {inside.name}"
        raise InputError(f"{inside.name} runs as user {name}; become it: {command}")


def run_inside(inside: "InsideInfo", command: Sequence[str]) -> int:
    """Run a command where a job works; returns its exit code."""
    from springtide.executors.local.as_user import find_user

    variables = inside.environment | {name: os.environ[name] for name in KEPT if name in os.environ}
    user = find_user(inside.run_as) if inside.run_as is not None and os.geteuid() == 0 else None
    try:
        if user is None:
            return subprocess.run(command, cwd=inside.folder, env=variables).returncode
        return subprocess.run(
            command,
            cwd=inside.folder,
            env=variables,
            user=user.uid,
            group=user.gid,
            extra_groups=list(user.groups),
            umask=0o077,
        ).returncode
    except OSError as error:
        raise InputError(f"{command[0]!r} cannot be run in {inside.folder}: {error.strerror}") from None
