"""What an agent writes down of itself beside its socket: who it is, where its sockets and pipes are, its devices.

For those who cannot ask it: its successor, and a server that starts while it is stopped.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from springtide.executors.local.daemon import is_alive
from springtide.executors.local.discovery import Device
from springtide.executors.local.paths import AGENT_NOTES, replace_file


def note_devices(state_dir: Path, devices: Iterable[Device]) -> None:
    """Add this agent's devices, which are the same for its whole life, to what it has written down."""
    noted = json.loads((state_dir / AGENT_NOTES).read_text()) | {"devices": [asdict(device) for device in devices]}
    replace_file(state_dir / AGENT_NOTES, json.dumps(noted).encode())


def end_if_replaced(state_dir: Path, folder: Path) -> None:
    """End at once, as if killed, if another agent is written down in the place of the one with this folder.

    It did not see our lock: the file was removed, or the storage that two machines share keeps no locks between them.
    What we write now would replace what it has written; our processes and hosts see that we are gone.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if json.loads((state_dir / AGENT_NOTES).read_text())["folder"] != str(folder):
            print(f"agent {os.getpid()} ends: another one serves {state_dir}", flush=True)
            os._exit(1)


def read_noted_devices(state_dir: Path) -> tuple[Device, ...] | None:
    """The devices of the agent that lives, as it wrote them down; None if none lives, or it has not come so far."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        noted = json.loads((state_dir / AGENT_NOTES).read_text())
        return load_devices(noted["devices"]) if is_alive(int(noted["pid"])) else None
    return None


def load_devices(listed: Sequence[Mapping[str, Any]]) -> tuple[Device, ...]:
    """Devices from JSON."""
    return tuple(Device(**{**device, "pids": tuple(device["pids"])}) for device in listed)
