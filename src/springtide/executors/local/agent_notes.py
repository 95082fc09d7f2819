"""What an agent writes down of itself beside its socket: who it is, where its sockets and pipes are, its devices.

For those who cannot ask it: its successor, and a server that starts while it is stopped.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from springtide.executors.local.daemon import is_alive
from springtide.executors.local.discovery import Device
from springtide.executors.local.paths import PLACE


def note_devices(state_dir: Path, devices: Iterable[Device]) -> None:
    """Add this agent's devices, which are the same for its whole life, to what it has written down."""
    place = state_dir / PLACE
    aside = place.with_suffix(".new")
    aside.write_text(json.dumps(json.loads(place.read_text()) | {"devices": [asdict(device) for device in devices]}))
    aside.replace(place)


def read_noted_devices(state_dir: Path) -> tuple[Device, ...] | None:
    """The devices of the agent that lives, as it wrote them down; None if none lives, or it has not come so far."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        noted = json.loads((state_dir / PLACE).read_text())
        return load_devices(noted["devices"]) if is_alive(int(noted["pid"])) else None
    return None


def load_devices(listed: Sequence[Mapping[str, Any]]) -> tuple[Device, ...]:
    """Devices from JSON."""
    return tuple(Device(**{**device, "pids": tuple(device["pids"])}) for device in listed)
