"""`springtide stop`: end the server and everything it started."""

import time
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import has_server
from springtide.cli.outputs import OUTPUT, OutputOption, say
from springtide.errors import ServerError, StateError

if TYPE_CHECKING:
    from springtide.control.storage.state_dir import StateDir

PATIENCE_S = 150.0


def run(output: OutputOption = OUTPUT) -> None:
    """End the server, its agent and all jobs' processes; jobs go on from their checkpoints at the next start.

    Example:

      springtide stop
    """
    from springtide.control.storage.state_dir import find_home

    home = find_home()
    stopped = stop_server() or stop_agent()
    if not output.write({"schema": 1, "stopped": stopped, "home": str(home.root)}):
        goes_on = f"unfinished jobs go on from their checkpoints when a server starts in {home.root} again"
        say(f"stopped; {goes_on}" if stopped else f"nothing runs in {home.root}")
    raise typer.Exit(0)


def stop_server() -> bool:
    """Ask the server to end all, and wait until it has; returns whether there was one. One that refuses is an error."""
    from springtide.client.client import Client
    from springtide.control.storage.state_dir import find_home, read_address

    home = find_home()
    address = read_address(home)
    try:
        with Client() as client:
            client.stop()
    except ServerError:
        if has_server():
            raise
        return False
    if address is not None:
        wait_for_end(home, int(address["pid"]))
    return True


def wait_for_end(home: "StateDir", pid: int) -> None:
    """Wait until a server's process is gone."""
    from springtide.executors.local.daemon import is_alive

    until_s = time.monotonic() + PATIENCE_S
    while is_alive(pid):
        if time.monotonic() > until_s:
            raise StateError(f"server {pid} did not end within {PATIENCE_S:g} s; see {home.log}")
        time.sleep(0.05)


def stop_agent() -> bool:
    """End an agent that was left without a server; returns whether there was one."""
    from springtide.control.storage.state_dir import find_home
    from springtide.executors.hosts.lead_executor import LeadExecutor

    home = find_home()
    if not home.root.is_dir():
        return False
    executor = LeadExecutor(home.root)
    if not executor.is_up:
        return False
    executor.shutdown()
    return True
