"""`hosts.roll` in the home: the hosts on which something may run, for the lead after this one.

That one starts nothing before each of them is back, or must have ended its guests. So nothing is started on a host
before it is written there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from pydantic import TypeAdapter

from springtide.executors.local.discovery import Device
from springtide.executors.local.paths import replace_file

ROLL = "hosts.roll"
#: When the roll is written again that a full disk did not take.
AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class RollEntry:
    """A host that was here, or was lost so lately that its guests may still be there."""

    name: str
    address: str
    devices: tuple[Device, ...]
    nodes: dict[str, str] = field(default_factory=dict)


_ROLL: TypeAdapter[list[RollEntry]] = TypeAdapter(list[RollEntry])


def read_roll(home: Path) -> list[RollEntry] | None:
    """The hosts that were here when the roll was written last; None if there is one that cannot be read."""
    try:
        return _ROLL.validate_json((home / ROLL).read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        return None


class HostRoll:
    """The roll as a lead writes it."""

    def __init__(self, home: Path) -> None:
        self.path = home / ROLL
        #: What the lead before this one wrote; None: nobody knows.
        self.found = read_roll(home)
        #: The hosts that are written there.
        self.names = {entry.name for entry in self.found or ()}
        #: When it is to be written next.
        self.due_s = inf

    def write(self, entries: Sequence[RollEntry], changes_s: float, now_s: float) -> None:
        """Write these hosts down, of whom some may leave at that time; a disk without room is tried again."""
        try:
            replace_file(self.path, _ROLL.dump_json(list(entries)))
        except OSError as error:
            print(f"{self.path} cannot be written, hosts that are not on it get no job meanwhile: {error}", flush=True)
            self.due_s = now_s + AGAIN_S
        else:
            self.names, self.due_s = {entry.name for entry in entries}, changes_s
