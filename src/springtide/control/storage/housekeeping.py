"""Keeping house: what takes space in a state directory, and what no job needs any more.

A finished job keeps its last checkpoint and its output; a cancelled one its last checkpoint for seven days; records and
folders go after ninety. Code goes with the last job that runs from it. A server does this by itself every hour; what
has no job yet (code that was just uploaded) and what may still be written is left alone for as long.

The folders of jobs that the store does not know, and the code they may need, stay: `orphans`. So do those of a job that
was written to later than its record says, as after a restore.
"""

import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from springtide.control.storage.archives import UPLOADS
from springtide.control.storage.orphans import Orphan, find_orphans
from springtide.control.storage.private_paths import list_inside, remove
from springtide.control.storage.records import JobOutcome
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.checkpoint_names import parse_name
from springtide.core.job_states import JobState

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
    #: Whose it is, as that job was when this was found to be needed no more.
    outcome: JobOutcome | None = None


def measure(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; links are not followed."""
    if not path.is_dir() or path.is_symlink():
        return measure_file(str(path))
    found = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(measure_file(name) for name in found)


def measure_file(name: str) -> int:
    """Bytes of a file that may be gone, or be a link, which has none of its own."""
    try:
        found = os.lstat(name)
    except OSError:
        return 0
    return 0 if stat.S_ISLNK(found.st_mode) else found.st_size


def list_usage(state_dir: StateDir) -> list[Removable]:
    """What takes space: database, logs and other files of the server, code, and each job's folders, largest first."""
    files = [path for path in state_dir.root.iterdir() if path.is_file()] if state_dir.root.is_dir() else []
    pieces = [piece("database" if path.name.startswith(state_dir.database.name) else "server", path) for path in files]
    pieces += [piece("code", path) for path in list_folders(state_dir, state_dir.code)]
    for job in list_folders(state_dir, state_dir.jobs):
        pieces += [piece(path.name, path) for path in list_folders(state_dir, job)]
    return sorted(pieces, key=lambda piece: (-piece.bytes, str(piece.path)))


def list_folders(state_dir: StateDir, path: Path) -> list[Path]:
    """Folders in a folder of the state directory; no links."""
    return [path / name for name, is_folder in list_inside(state_dir.root, path).items() if is_folder]


def list_garbage(state_dir: StateDir, store: Store, now_s: float, keep_days: float = KEEP_DAYS) -> list[Removable]:
    """What may go now."""
    outcomes = {outcome.id: outcome for outcome in store.list_outcomes()}
    orphans = find_orphans(state_dir, outcomes)
    known = [outcomes[one.name] for one in list_folders(state_dir, state_dir.jobs) if one.name in outcomes]
    garbage: list[Removable] = []
    for outcome in known:
        with bear(outcome.id):
            garbage += list_job_garbage(state_dir, outcome, now_s, keep_days)
    used = {one.archive for one in outcomes.values() if may_go_on(state_dir, one, now_s, keep_days)}
    return garbage + [one for one in list_unused_code(state_dir, used, orphans) if not is_young(one.path)]


def list_unused_code(state_dir: StateDir, used: set[str], orphans: list[Orphan]) -> list[Removable]:
    """Code that no job runs from, and left-overs of uploads. An unknown folder that names no code may need any."""
    told = [orphan.manifest for orphan in orphans if orphan.manifest is not None]
    needed = used | {manifest.record.archive for manifest in told}
    names = list_inside(state_dir.root, state_dir.code)
    parts = [name for name in names if name.startswith(UPLOADS)]
    # a copy that a setup has changed is named after its code
    whole = (
        [name for name in names if name.partition("~")[0] not in needed and name not in parts]
        if len(told) == len(orphans)
        else []
    )
    return [piece("upload" if name in parts else "code", state_dir.code / name) for name in (*whole, *parts)]


def list_orphans(state_dir: StateDir, store: Store) -> list[Removable]:
    """What only `springtide gc --orphans` removes: folders of unknown jobs, and code that no known job runs from."""
    outcomes = store.list_outcomes()
    orphans = find_orphans(state_dir, {outcome.id for outcome in outcomes})
    folders = [piece("orphan", orphan.folder) for orphan in orphans if not is_young(orphan.folder)]
    code = list_unused_code(state_dir, {outcome.archive for outcome in outcomes}, [])
    return folders + [one for one in code if not is_young(one.path)]


def list_job_garbage(state_dir: StateDir, outcome: JobOutcome, now_s: float, keep_days: float) -> list[Removable]:
    """What of one job's folder may go now."""
    if outcome.active:
        return []
    if is_past(state_dir, outcome, now_s, keep_days):
        return [replace(piece("job", state_dir.job_folder(outcome.id)), outcome=outcome)]
    saved = list_folders(state_dir, state_dir.checkpoints(outcome.id))
    # one that is being written while a cancelled job ends has a name with a dot
    young = [one for one in saved if one.name[0] == "." and is_young(one)]
    checkpoints = sorted((one for one in saved if one not in young), key=rank_checkpoint)
    is_dropped = outcome.state is JobState.CANCELLED and is_past(state_dir, outcome, now_s, KEEP_CANCELLED_DAYS)
    found = {"checkpoint": checkpoints if is_dropped else checkpoints[:-1]}
    found["probe"] = [state_dir.scratch(outcome.id)]
    found["secrets"] = [state_dir.secrets_file(outcome.id)]
    there = [piece(kind, path) for kind, paths in found.items() for path in paths if path.exists()]
    return [replace(one, outcome=outcome) for one in there]


@contextmanager
def bear(job_id: str) -> Iterator[None]:
    """While one job's folder is looked at, which others write in, rename and close: what goes wrong costs only that."""
    try:
        yield
    except OSError as error:
        logger.warning("what job %s has left is not looked at now, and stays: %s", job_id, error)


def may_go_on(state_dir: StateDir, outcome: JobOutcome, now_s: float, days: float) -> bool:
    """Whether a job may still need its code; also one whose folder cannot be looked at."""
    with bear(outcome.id):
        return not is_past(state_dir, outcome, now_s, days)
    return True


def is_past(state_dir: StateDir, outcome: JobOutcome, now_s: float, days: float) -> bool:
    """Whether a job ended so long ago, and has written no checkpoint since: else its record is of an older backup."""
    if outcome.active or outcome.finished_s is None or outcome.finished_s >= now_s - days * DAY_S:
        return False
    saved = list_folders(state_dir, state_dir.checkpoints(outcome.id))
    newest_s = max((one.stat(follow_symlinks=False).st_mtime for one in saved), default=0.0)
    return newest_s <= outcome.finished_s + HOUR_S


def rank_checkpoint(path: Path) -> tuple[bool, int, int, str]:
    """The newest checkpoint has the greatest; what is none, or is damaged or unfinished, has less than any."""
    name = parse_name(path.name)
    return (name is not None, name.generation if name else 0, name.step if name else 0, path.name)


def is_young(path: Path) -> bool:
    """Whether something was put there within the last hour, by the clock of the disk; what is gone is left alone."""
    try:
        return path.stat(follow_symlinks=False).st_mtime > time.time() - HOUR_S
    except FileNotFoundError:
        return True


def piece(kind: str, path: Path) -> Removable:
    """Something on disk with its size."""
    return Removable(kind, path, measure(path))


def collect(state_dir: StateDir, store: Store, now_s: float, keep_days: float = KEEP_DAYS) -> list[Removable]:
    """Remove what may go; returns what went. A job's record goes last: without it its folder would be an orphan."""
    garbage = []
    for one in list_garbage(state_dir, store, now_s, keep_days):  # measuring it may have taken minutes
        if may_still_go(store, one, now_s - keep_days * DAY_S):
            remove_all(state_dir, [one])
            garbage.append(one)
    kept = [one.name for one in list_folders(state_dir, state_dir.jobs)]
    store.prune(now_s - keep_days * DAY_S, kept)
    return garbage


def may_still_go(store: Store, one: Removable, since_s: float) -> bool:
    """Whether nobody has begun to need something since it was listed: its job was not resumed, its code not used.

    Jobs that ended before an instant need their code no more.
    """
    if one.outcome is not None:
        return store.find_outcome(one.outcome.id) == one.outcome
    return one.kind != "code" or not store.is_archive_used(one.path.name.partition("~")[0], since_s)


def remove_all(state_dir: StateDir, pieces: list[Removable]) -> None:
    """Remove things below the state directory."""
    for one in pieces:
        remove(state_dir.root, one.path)


def keep_house(state_dir: StateDir, store: Store, now_s: Callable[[], float], keep_days: float, ended: Event) -> None:
    """Remove what may go, now and then, until the server has ended. What goes wrong is logged and tried again."""
    wait_s = FIRST_S
    while not ended.wait(wait_s):
        wait_s = HOUR_S
        try:
            gone = collect(state_dir, store, now_s(), keep_days)
        except Exception:  # else nothing would be removed until the next server
            logger.exception("keeping house failed; it is tried again in an hour")
            continue
        if gone:
            logger.info("removed %d things of ended jobs, %.1f MB", len(gone), sum(one.bytes for one in gone) / 1e6)
