"""Keeping house: what takes space in a state directory, and what no job needs any more.

A finished job keeps its last checkpoint and its output; a cancelled one its last checkpoint for seven days; records and
folders go after ninety. Code goes with the last job that runs from it. A server does this by itself every hour; what
has no job yet (code that was just uploaded) and what may still be written is left alone for as long.
"""

import contextlib
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from sqlalchemy.exc import SQLAlchemyError

from springtide.control.storage.records import JobOutcome
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.job_states import JobState
from springtide.executors.local.safe_files import hold

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
KEEP_DAYS = 90.0
KEEP_CANCELLED_DAYS = 7.0
FIRST_S = 60.0  # after its start a server has jobs to adopt
logger = logging.getLogger("springtide.control")


@dataclass(frozen=True, slots=True)
class Removable:
    """Something on disk: what it is, where, and how large."""

    kind: str
    path: Path
    bytes: int


def measure(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; what links lead to is not counted."""
    if not path.is_dir() or path.is_symlink():
        return path.stat(follow_symlinks=False).st_size
    return sum(measure_files(files, folder) for _, _, files, folder in os.fwalk(path))


def measure_files(names: list[str], folder: int) -> int:
    """Bytes of files in a folder held open; one that has just gone has none."""
    total = 0
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            total += os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    return total


def list_usage(state_dir: StateDir) -> list[Removable]:
    """What takes space: database, logs and other files of the server, code, and each job's folders, largest first."""
    files = [path for path in state_dir.root.iterdir() if path.is_file()] if state_dir.root.is_dir() else []
    pieces = [piece("database" if path.name.startswith(state_dir.database.name) else "server", path) for path in files]
    pieces += [piece("code", path) for path in list_folders(state_dir.code)]
    for job in list_folders(state_dir.jobs):
        pieces += [piece(path.name, path) for path in list_folders(job)]
    return sorted(pieces, key=lambda piece: (-piece.bytes, str(piece.path)))


def list_folders(path: Path) -> list[Path]:
    """Folders in a folder; a link, which a job's user may have made, is none."""
    if path.is_symlink() or not path.is_dir():
        return []
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink())


def list_garbage(state_dir: StateDir, store: Store, now_s: float, keep_days: float = KEEP_DAYS) -> list[Removable]:
    """What may go now."""
    outcomes = {outcome.id: outcome for outcome in store.list_outcomes()}
    garbage: list[Removable] = []
    for folder in list_folders(state_dir.jobs):
        outcome = outcomes.get(folder.name)
        if outcome is not None:
            garbage += list_job_garbage(state_dir, outcome, now_s, keep_days)
        elif not is_young(folder):
            garbage.append(piece("job", folder))
    used = {outcome.archive for outcome in outcomes.values() if not is_old(outcome, now_s, keep_days)}
    unused = [folder for folder in list_folders(state_dir.code) if folder.name not in used]
    return garbage + [piece("code", folder) for folder in unused if not is_young(folder)]


def list_job_garbage(state_dir: StateDir, outcome: JobOutcome, now_s: float, keep_days: float) -> list[Removable]:
    """What of one job's folder may go now."""
    if outcome.active:
        return []
    if is_old(outcome, now_s, keep_days):
        return [piece("job", state_dir.job_folder(outcome.id))]
    # one that is being written while a cancelled job ends has a name with a dot
    checkpoints = [
        one for one in list_folders(state_dir.checkpoints(outcome.id)) if one.name[0] != "." or not is_young(one)
    ]
    is_past = outcome.state is JobState.CANCELLED and is_old(outcome, now_s, KEEP_CANCELLED_DAYS)
    found = {"checkpoint": checkpoints if is_past else checkpoints[:-1]}
    found["probe"] = [state_dir.scratch(outcome.id)]
    found["secrets"] = [state_dir.secrets_file(outcome.id)]
    return [piece(kind, path) for kind, paths in found.items() for path in paths if path.exists()]


def is_old(outcome: JobOutcome, now_s: float, days: float) -> bool:
    """Whether a job ended so long ago."""
    return not outcome.active and outcome.finished_s is not None and outcome.finished_s < now_s - days * DAY_S


def is_young(path: Path) -> bool:
    """Whether something was put there within the last hour, by the clock of the disk."""
    return path.stat().st_mtime > time.time() - HOUR_S


def piece(kind: str, path: Path) -> Removable:
    """Something on disk with its size."""
    return Removable(kind, path, measure(path))


def collect(state_dir: StateDir, store: Store, now_s: float, keep_days: float = KEEP_DAYS) -> list[Removable]:
    """Remove what may go; returns what went."""
    garbage = list_garbage(state_dir, store, now_s, keep_days)
    store.prune(now_s - keep_days * DAY_S)
    for one in garbage:
        remove(one.path)
    return garbage


def remove(path: Path) -> None:
    """Remove a file or folder from the folder that it lies in, entered without following a link of a job's user."""
    with contextlib.suppress(OSError), hold(path.parent) as folder:
        if stat.S_ISDIR(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(path.name, ignore_errors=True, dir_fd=folder)
        else:
            os.unlink(path.name, dir_fd=folder)


def keep_house(state_dir: StateDir, store: Store, now_s: Callable[[], float], keep_days: float, ended: Event) -> None:
    """Remove what may go, now and then, until the server has ended. What goes wrong is logged and tried again."""
    wait_s = FIRST_S
    while not ended.wait(wait_s):
        wait_s = HOUR_S
        try:
            gone = collect(state_dir, store, now_s(), keep_days)
        except (OSError, SQLAlchemyError):
            logger.exception("keeping house failed; it is tried again in an hour")
            continue
        if gone:
            logger.info("removed %d things of ended jobs, %.1f MB", len(gone), sum(one.bytes for one in gone) / 1e6)
