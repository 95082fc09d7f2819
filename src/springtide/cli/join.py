"""`springtide join`: give this machine to a cluster."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import typer

from springtide.cli.outputs import tell
from springtide.errors import ExecutorError, InputError

LOOK_S = 0.2
#: What `ray start` prints when the head has taken the raylet in.
STARTED = "Ray runtime started"


def run(
    head: str = typer.Argument(metavar="HEAD:PORT", help="Where the head of the Ray cluster listens."),
    token: str = typer.Option(
        None, envvar="RAY_AUTH_TOKEN", help="The cluster's token, where its Ray asks for one; better in RAY_AUTH_TOKEN."
    ),
    devices: int = typer.Option(None, min=0, help="CPU slots to give, without GPUs. [dim]Default: the cores[/]"),
    notice_s: float = typer.Option(30.0, "--notice", min=0.0, help="Seconds for jobs to leave when told to go."),
) -> None:
    """Let this machine work for a cluster until Ctrl-C, SIGTERM or SIGUSR1. Needs no root, and installs nothing.

    Starts a raylet with our resource; the server's agent comes by Ray. The server's home must be seen here at the same
    path: it lies on storage that all hosts share. When told to go, jobs have a notice to leave before the raylet ends.

    Examples:

      RAY_AUTH_TOKEN=... springtide join 10.0.0.5:6379

      springtide join 10.0.0.5:6379 --devices 8
    """
    from springtide.executors.ray.ray_executor import check_address
    from springtide.executors.ray.ray_nodes import OURS

    if importlib.util.find_spec("ray") is None:
        raise InputError("springtide join needs Ray, which is not installed here: pip install 'springtide[ray]'")
    check_address(head)
    command = [str(Path(sys.executable).with_name("ray")), "start", "--address", head, "--block"]
    command += ["--resources", json.dumps({OURS: 1}), "--disable-usage-stats"]
    command += ["--num-cpus", str(devices)] if devices is not None else []
    keeper = RayletKeeper(head, command, {**os.environ, **choose_variables(token)})
    raise typer.Exit(keeper.run(notice_s))


def choose_variables(token: str | None) -> dict[str, str]:
    """What Ray reads at its start: its workers are as important as others, and the token if there is one."""
    asked = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {}
    return {"RAY_worker_niceness": "0", **asked}


class RayletKeeper:
    """Runs a raylet until told to go; one that has served and ends, as all do with Ray's head, is started again."""

    def __init__(self, head: str, command: list[str], environment: dict[str, str]) -> None:
        self.head = head
        self.command = command
        self.environment = environment
        self.has_served = False
        self.told: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, lambda number, frame: self.told.append(number))

    def run(self, notice_s: float) -> int:
        """Keep a raylet; jobs leave this machine before it is ended. One that was never taken in is an error."""
        raylet: subprocess.Popen[str] | None = None
        while not self.told:
            raylet = self.start()
            while raylet.poll() is None and not self.told:
                time.sleep(LOOK_S)
            if raylet.returncode is not None:
                if not self.has_served:
                    raise ExecutorError(
                        f"the head at {self.head} did not take this machine in (see above); if the cluster has a "
                        "token, set RAY_AUTH_TOKEN to it; if it is encrypted, RAY_USE_TLS and the RAY_TLS_ variables; "
                        "Ray and Python must be of the cluster's versions"
                    )
                tell(f"the raylet has ended; jobs here go on, and it is started again when {self.head} answers")
                self.wait_for_head()
        from springtide.executors.hosts.host_folders import give_notice

        give_notice(notice_s)
        if raylet is not None and raylet.poll() is None:
            raylet.terminate()
            raylet.wait()
        return 0

    def start(self) -> subprocess.Popen[str]:
        """Start a raylet, and pass on what it prints."""
        raylet = subprocess.Popen(
            self.command, env=self.environment, start_new_session=True, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self.listen, args=(raylet,), daemon=True).start()
        return raylet

    def listen(self, raylet: subprocess.Popen[str]) -> None:
        """Print what a raylet does, and note that it was taken in."""
        assert raylet.stdout is not None
        for line in raylet.stdout:
            self.has_served = self.has_served or STARTED in line
            print(line, end="", flush=True)

    def wait_for_head(self) -> None:
        """Wait until the head listens, or we are told to go."""
        from springtide.executors.ray.ray_executor import check_address

        while not self.told:
            time.sleep(LOOK_S)
            with contextlib.suppress(ExecutorError):
                check_address(self.head)
                return
