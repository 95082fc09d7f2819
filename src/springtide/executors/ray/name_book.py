"""`ray.names` in the home: where the host of each name was last, so that a machine keeps its name under another head.

Ray gives a node an id that ends with its raylet; names of hosts stand in drains, devices and logs, and must not.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from springtide.executors.local.paths import replace_file

BOOK = "ray.names"
#: Names that are kept: the last to have been given. Clouds and pods have new ones every day.
MOST_NAMES = 10_000


def read_book(home: Path) -> dict[str, str]:
    """Addresses by name; what cannot be read counts as empty, which costs no more than another name."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        written = json.loads((home / BOOK).read_text())
        return {name: address for name, address in written.items() if isinstance(address, str)}
    return {}


def write_book(home: Path, given: Mapping[str, str]) -> None:
    """Add names with their addresses, if they are not written there; a full disk costs the names, not the hosts."""
    before = read_book(home)
    if all(before.get(name) == address for name, address in given.items()):
        return
    names = {**{name: address for name, address in before.items() if name not in given}, **given}
    with contextlib.suppress(OSError):
        replace_file(home / BOOK, json.dumps(dict(list(names.items())[-MOST_NAMES:])).encode())
