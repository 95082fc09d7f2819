"""`springtide shell`, `exec` and `stack`: inside a running job, on its machine and as its user.

The server only says where the job works; what is run here has the rights of the user who calls. Of a job on several
machines, what is called on one of them sees the job's devices and processes there.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import choose_job, complete_job, connect
from springtide.cli.outputs import OUTPUT, OutputOption, clean_log, say, tell
from springtide.errors import InputError

if TYPE_CHECKING:
    from springtide.client.replies import InsideInfo, MachineInfo

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}
KEPT = ("TERM", "COLORTERM", "LC_ALL")
NODE = r"-[0-9]+"  # behind the name of a host that another machine has too
JOB = typer.Argument(
    None, metavar="[JOB]", help="An id, a name or its beginning. Default: the newest.", autocompletion=complete_job
)


def shell(job: str = JOB) -> None:
    """Open a terminal in a running job's folder, with its variables, secrets and devices, as the user it runs as.

    On the machine where the job runs; elsewhere it is said which that is.

    Example:

      springtide shell digits-cnn
    """
    inside, machine = look(job, "shell")
    program = os.environ.get("SHELL") or "/bin/sh"
    tell(f"in {inside.folder} of {inside.name}; the job goes on. Leave with: exit")
    raise typer.Exit(run_inside(inside, machine, [program]))


def execute(
    job: str = typer.Argument(
        metavar="JOB", help="An id, a name or the beginning of one.", autocompletion=complete_job
    ),
    command: list[str] = typer.Argument(metavar="-- COMMAND...", help="What to run."),
) -> None:
    """Run a command in a running job's folder, with its variables, secrets and devices, as the user it runs as.

    On the machine where the job runs; elsewhere it is said which that is. The exit code is the command's.

    Examples:

      springtide exec digits-cnn -- ls -la

      springtide exec digits-cnn -- python -c 'import torch; print(torch.cuda.device_count())'
    """
    words = command[1:] if command[:1] == ["--"] else command
    raise typer.Exit(run_inside(*look(job, "exec"), words))


def stack(
    job: str = JOB,
    native: bool = typer.Option(False, "--native", help="With the frames of C code."),
    output: OutputOption = OUTPUT,
) -> None:
    """Show where each process of a running job is in its code now. Needs py-spy: pip install 'springtide[stack]'.

    Example:

      springtide stack digits-cnn
    """
    inside, machine = look(job, "stack")
    if not machine.pids:
        raise InputError(f"{inside.name} has no process here yet; try again in a moment")
    command = [find_spy(), "dump", *(["--native"] if native else []), "--pid"]
    found = [(pid, subprocess.run([*command, str(pid)], capture_output=True, text=True)) for pid in machine.pids]
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


def look(job: str | None, verb: str) -> "tuple[InsideInfo, MachineInfo]":
    """A running job with a part on this machine, and that part; its user this process is or can become."""
    with connect() as client:
        inside = client.inside(choose_job(client, job))
    machine = find_machine(inside, verb, socket.gethostname())
    check_user(inside, verb, os.geteuid())
    if verb != "stack" and not Path(inside.folder).is_dir():
        raise InputError(
            f"the folder of {inside.name} is not on this machine, whose disk is its own: {inside.folder}; have the job "
            f"do it itself, or look from outside: springtide stack {inside.name}, springtide logs {inside.name}"
        )
    return inside, machine


def find_machine(inside: "InsideInfo", verb: str, here: str) -> "MachineInfo":
    """The part of a job on this machine; where there is none, the error says on which machine it is."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", here).strip("-.") or "host"  # as Ray's nodes are named
    numbered = re.compile(re.escape(plain) + NODE)
    exact = [machine for machine in inside.machines if machine.host in (here, plain)]
    alike = [machine for machine in inside.machines if numbered.fullmatch(machine.host)]
    if len(exact) == 1 and not alike:
        return exact[0]
    # Several machines call themselves so: this is the one that has the job's processes.
    present = [one for one in (*exact, *alike) if one.pids and all(is_process_of(pid, inside) for pid in one.pids)]
    if len(present) == 1:
        return present[0]
    hosts = [machine.host for machine in inside.machines] or [inside.host]
    raise InputError(
        f"{inside.name} runs on {', '.join(hosts)}, and this is {here}; go there: "
        f"ssh {hosts[0]} springtide {verb} {inside.name}   (there with this server's SPRINGTIDE_URL and your "
        "SPRINGTIDE_TOKEN)"
    )


def is_process_of(pid: int, inside: "InsideInfo") -> bool:
    """Whether a process of this machine is one of the job's: it works in the job's folder."""
    try:
        return os.readlink(f"/proc/{pid}/cwd") == inside.folder
    except OSError:
        return False


def check_user(inside: "InsideInfo", verb: str, uid: int) -> None:
    """Refuse a user who does not own the job's processes and cannot become their owner."""
    from springtide.executors.local.as_user import find_user

    wanted = inside.uid if inside.run_as is None else find_user(inside.run_as).uid
    if uid not in (0, wanted):
        name = inside.run_as or f"#{inside.uid}"
        command = f"sudo -u {name} springtide {verb} {inside.name}"
        raise InputError(f"{inside.name} runs as user {name}; become it: {command}")


def choose_variables(inside: "InsideInfo", machine: "MachineInfo", own: Mapping[str, str]) -> dict[str, str]:
    """The job's variables as a process on this machine has them, which sees the job's devices here and no other.

    On another machine than the server's, programs are found as here.
    """
    taken = KEPT if machine.host == inside.host else (*KEPT, "PATH")
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(machine.visible_devices)}
    return inside.environment | {name: own[name] for name in taken if name in own} | visible


def run_inside(inside: "InsideInfo", machine: "MachineInfo", command: Sequence[str]) -> int:
    """Run a command where a job works; returns its exit code."""
    from springtide.executors.local.as_user import find_user

    variables = choose_variables(inside, machine, os.environ)
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
