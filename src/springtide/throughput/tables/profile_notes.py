"""What a profile says beside its points: `x.points.json` next to `x.points.csv`. Sizes, transport, noise; no times.

`springtide profile` writes them; planning reads from them what a job's file need not repeat.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide.errors import ProfileError

SUFFIX = ".points.csv"


@dataclass(frozen=True, slots=True)
class Notes:
    """Of a profiled script: samples per step of one logical worker, how many it has, and all its global steps.

    None is not noted; the steps are those of these workers at this batch.
    """

    worker_batch: int | None = None
    logical_workers: int | None = None
    steps: int | None = None


def find_notes_file(points: Path) -> Path:
    """Where the notes of a points file are."""
    return points.with_suffix(".json")


def write_notes(points: Path, notes: Mapping[str, Any]) -> Path:
    """Write notes beside a points file; returns where."""
    target = find_notes_file(points)
    target.write_text(json.dumps({"schema": 1, **notes}, indent=2) + "\n", encoding="utf-8")
    return target


def read_notes(points: Path) -> Notes:
    """The notes beside a points file; empty where there are none, as for a table that was imported."""
    path = find_notes_file(points)
    if not path.is_file():
        return Notes()
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path}: cannot be read ({error}); profile the script again, or remove it") from None
    if not isinstance(told, dict):
        raise ProfileError(f"{path}: holds no notes of a profile; profile the script again, or remove it")
    return Notes(
        *(_read_count(path, told, name) for name in ("worker_batch", "script_logical_workers", "script_steps"))
    )


def _read_count(path: Path, told: Mapping[str, Any], name: str) -> int | None:
    value = told.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ProfileError(f"{path}: {name} {value!r} must be a whole number of at least 1")
    return value
