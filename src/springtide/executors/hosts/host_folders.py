"""The agents of this host by their folders: where each is, who has it, and whether it was told to go.

`python -m springtide.executors.hosts.host_folders --notice-s 100` has all of them leave before this machine goes, as
`springtide join` does when it is told to end: for whoever ends machines and asks first, as Kubernetes does.
"""

import argparse
import contextlib
import json
import os
import signal
import tempfile
import time
from pathlib import Path

import psutil

from springtide.errors import ExecutorError
from springtide.executors.local.paths import AGENT_NOTES, make_mark

#: In the folder of an agent that was told to go: the node that it has left.
LEFT = "left"


def find_root() -> Path:
    """Where the agents of this host that are ours have their folders."""
    return Path(tempfile.gettempdir()) / f"springtide-{os.getuid()}"


def make_state_dir(home: Path, name: str) -> Path:
    """A folder on this host's own disk for one home and one name; nobody else's."""
    root = find_root()
    root.mkdir(mode=0o700, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.getuid():
        raise ExecutorError(f"{root} is somebody else's; remove it, or set TMPDIR where the raylet starts")
    folder = root / f"{name}-{make_mark(home)}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def read_agent(state_dir: Path) -> int | None:
    """The agent that has a state folder, if it is there."""
    with contextlib.suppress(OSError, ValueError, KeyError, psutil.Error):
        pid = int(json.loads((state_dir / AGENT_NOTES).read_text())["pid"])
        if "springtide.executors.hosts.host_agent" in psutil.Process(pid).cmdline():
            return pid
    return None


def list_agents() -> list[int]:
    """The agents of this host that are ours, of whichever home."""
    found = [read_agent(notes.parent) for notes in find_root().glob(f"*/{AGENT_NOTES}")]
    return [pid for pid in found if pid is not None]


def note_leave(state_dir: Path, node: str) -> None:
    """Write down that the agent was told to go from a node; a full disk costs that it is started there again."""
    with contextlib.suppress(OSError):
        (state_dir / LEFT).write_text(node)


def has_left(state_dir: Path, node: str) -> bool:
    """Whether the agent of a folder was told to go from this very node."""
    try:
        return bool(node) and (state_dir / LEFT).read_text() == node
    except OSError:
        return False


def give_notice(notice_s: float) -> None:
    """Tell the agents of this host to go, and wait until they have gone, or the notice is over."""
    until_s = time.monotonic() + notice_s
    for pid in list_agents():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)
    while list_agents() and time.monotonic() < until_s:
        time.sleep(0.2)


def main() -> None:
    """Give the notice that the command line says."""
    parser = argparse.ArgumentParser(description="Have the agents of this host leave before it goes.")
    parser.add_argument("--notice-s", type=float, default=30.0)
    give_notice(parser.parse_args().notice_s)


if __name__ == "__main__":
    main()
