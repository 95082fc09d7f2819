"""Finished runs kept on disk, by a digest of everything that their result depends on.

Values are JSON. What cannot be read back (cut off, other version) counts as absent. Nothing here knows what is stored.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from springtide import __version__


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of results."""

    folder: Path

    def find(self, key: str) -> Any | None:
        """The result kept under a key, if there is a whole one."""
        try:
            return json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def keep(self, key: str, value: Any) -> None:
        """Keep a result; it appears at once or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / f"{key}.part"
        half.write_text(json.dumps(value), encoding="utf-8")
        half.replace(self.folder / f"{key}.json")

    def remember(self, parts: object, compute: Callable[[], Any]) -> Any:
        """The result kept for these parts, or a new one, kept."""
        key = make_key(parts)
        known = self.find(key)
        if known is None:
            # Through JSON, so that a new result is what a kept one would be.
            known = json.loads(json.dumps(compute()))
            self.keep(key, known)
        return known


def make_key(parts: object) -> str:
    """A digest of plain values, the same for equal values in every process."""
    text = json.dumps([__version__, parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def digest_file(path: Path) -> str:
    """A digest of a file's bytes; read once, because inputs do not change under a run."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest_files(paths: Iterable[Path]) -> str:
    """A digest of several files, by name and bytes."""
    return make_key([(path.name, digest_file(path)) for path in sorted(paths)])
