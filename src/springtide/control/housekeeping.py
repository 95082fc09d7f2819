"""Keeping house: what takes space in a state directory, and what no job needs any more.

A finished job keeps its last checkpoint and its output; a cancelled one its last checkpoint for seven days; records and
folders go after ninety. Code goes with the last job that runs from it.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from springtide.control.homes import Home
from springtide.control.records import JobRecord, State
from springtide.control.store import Store

DAY_S = 86400.0
KEEP_DAYS = 90.0
KEEP_CANCELLED_DAYS = 7.0


@dataclass(frozen=True, slots=True)
class Piece:
    """Something on disk: what it is, where, and how large."""

    kind: str
    path: Path
    bytes: int


def measure(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file() and not entry.is_symlink())


def list_usage(home: Home) -> list[Piece]:
    """What takes space: the database, code, and each job's folders, largest first."""
    pieces = [Piece("database", home.database, measure(home.database))] if home.database.exists() else []
    pieces += [Piece("code", path, measure(path)) for path in list_folders(home.code)]
    for job in list_folders(home.jobs):
        pieces += [Piece(path.name, path, measure(path)) for path in list_folders(job)]
    return sorted(pieces, key=lambda piece: (-piece.bytes, str(piece.path)))


def list_folders(path: Path) -> list[Path]:
    """Folders in a folder."""
    return sorted(entry for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []


def list_garbage(home: Home, store: Store, now_s: float, keep_days: float = KEEP_DAYS) -> list[Piece]:
    """What may go now."""
    records = {record.id: record for record in store.list_jobs()}
    garbage: list[Piece] = []
    for folder in list_folders(home.jobs):
        record = records.get(folder.name)
        garbage += [piece("job", folder)] if record is None else list_job_garbage(home, record, now_s, keep_days)
    used = {record.archive for record in records.values() if not is_old(record, now_s, keep_days)}
    garbage += [piece("code", folder) for folder in list_folders(home.code) if folder.name not in used]
    return garbage


def list_job_garbage(home: Home, record: JobRecord, now_s: float, keep_days: float) -> list[Piece]:
    """What of one job's folder may go now."""
    if record.active:
        return []
    if is_old(record, now_s, keep_days):
        return [piece("job", home.job_folder(record.id))]
    checkpoints = list_folders(home.checkpoints(record.id))
    is_past = record.state is State.CANCELLED and is_old(record, now_s, KEEP_CANCELLED_DAYS)
    old = checkpoints if is_past else checkpoints[:-1]
    scratch = [home.scratch(record.id)] if home.scratch(record.id).is_dir() else []
    return [piece("checkpoint", path) for path in old] + [piece("probe", path) for path in scratch]


def is_old(record: JobRecord, now_s: float, days: float) -> bool:
    """Whether a job ended so long ago."""
    return not record.active and record.finished_s is not None and record.finished_s < now_s - days * DAY_S


def piece(kind: str, path: Path) -> Piece:
    """Something on disk with its size."""
    return Piece(kind, path, measure(path))


def collect(home: Home, store: Store, now_s: float, keep_days: float = KEEP_DAYS) -> list[Piece]:
    """Remove what may go; returns what went."""
    garbage = list_garbage(home, store, now_s, keep_days)
    store.prune(now_s - keep_days * DAY_S)
    for one in garbage:
        shutil.rmtree(one.path, ignore_errors=True)
    return garbage
