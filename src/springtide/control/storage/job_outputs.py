"""What a job leaves, as one tree of paths: `output/...`, `checkpoints/step-.../...`, `logs/...`.

A job's processes own their folders, so no link is followed, whatever is no plain file is left out, and so is what has
a name that no text can hold. A rank's log is one file here, however many it lies in. What hosts have left in object
storage and not on this disk is in the tree too, under the same paths.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from springtide.control.storage import job_logs
from springtide.control.storage.places import stored_outputs
from springtide.control.storage.private_paths import open_folder, open_plain
from springtide.control.storage.saved_checkpoints import list_checkpoints, open_file
from springtide.control.storage.state_dir import StateDir
from springtide.executors.log_files import NOTES, name_log

MOST_FILES = 10_000
MOST_DEPTH = 32
OUTPUT, CHECKPOINTS, LOGS = "output", "checkpoints", "logs"


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of a job: its path in the tree, and a version that changes when it does."""

    path: str
    size: int
    modified_s: float
    version: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """The files of a job, by path; `more` says that there are others which are not listed."""

    files: tuple[KeptFile, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file to read, and its version."""

    file: BinaryIO
    version: str


def list_kept(state_dir: StateDir, job_id: str, with_checkpoints: bool) -> KeptFiles:
    """All that a job has left, as far as the limit goes."""
    found = [*list_logs(state_dir, job_id)]
    if with_checkpoints:
        found += list_saved(state_dir, job_id)
    for file in list_outputs(state_dir, job_id):
        if len(found) == MOST_FILES:
            return KeptFiles(tuple(sorted(found, key=lambda one: one.path)), more=True)
        found.append(file)
    return KeptFiles(tuple(sorted(found, key=lambda one: one.path)), more=False)


def list_outputs(state_dir: StateDir, job_id: str) -> Iterator[KeptFile]:
    """The output that is on this disk, and what is in object storage beside it."""
    here = set()
    for file in walk(state_dir, state_dir.output(job_id), OUTPUT, 0):
        here.add(file.path)
        yield file
    for name, copied in stored_outputs.list_copied(state_dir, job_id).items():
        path = f"{OUTPUT}/{name}"
        if path not in here and is_text(name):
            yield KeptFile(path, copied.bytes, copied.modified_s, copied.sha256, copied.sha256)


def open_kept(state_dir: StateDir, job_id: str, path: PurePosixPath) -> OpenedFile:
    """A file of the tree that is no log, to read; OSError where there is none."""
    try:
        file = open_plain(state_dir.root, state_dir.job_folder(job_id).joinpath(*path.parts))
        return OpenedFile(file, find_version(os.fstat(file.fileno())))
    except OSError:
        if state_dir.storage is None or path.parts[0] == LOGS:
            raise
    if path.parts[0] == OUTPUT:
        return OpenedFile(*stored_outputs.open_copied(state_dir, job_id, str(path.relative_to(OUTPUT))))
    for checkpoint in list_checkpoints(state_dir, job_id):
        for one in checkpoint.files:
            if str(path) == f"{CHECKPOINTS}/{checkpoint.name}/{one.name}":
                return OpenedFile(open_file(state_dir, job_id, checkpoint, one.name), one.sha256)
    raise FileNotFoundError(str(path))


def walk(state_dir: StateDir, folder: Path, path: str, depth: int) -> Iterator[KeptFile]:
    """The plain files below a folder."""
    try:
        with open_folder(state_dir.root, folder.relative_to(state_dir.root).parts) as handle:
            names = sorted(name for name in os.listdir(handle) if is_text(name))
            found = {name: os.stat(name, dir_fd=handle, follow_symlinks=False) for name in names}
    except OSError:
        return
    for name, facts in found.items():
        if stat.S_ISREG(facts.st_mode):
            yield describe(f"{path}/{name}", facts)
        elif stat.S_ISDIR(facts.st_mode) and depth < MOST_DEPTH:
            yield from walk(state_dir, folder / name, f"{path}/{name}", depth + 1)


def is_text(name: str) -> bool:
    """Whether a name can be told."""
    try:
        return name.encode("utf-8").isascii() or name.isprintable()
    except UnicodeEncodeError:
        return False


def describe(path: str, facts: os.stat_result, sha256: str | None = None) -> KeptFile:
    """A file as the tree tells it."""
    return KeptFile(path, facts.st_size, facts.st_mtime, find_version(facts), sha256)


def find_version(facts: os.stat_result) -> str:
    """What changes when a file does."""
    return f"{facts.st_ino:x}-{facts.st_mtime_ns:x}-{facts.st_size:x}"


def list_saved(state_dir: StateDir, job_id: str) -> Iterator[KeptFile]:
    """The files of whole checkpoints, with the hashes that their manifests tell; in object storage, what these name."""
    for checkpoint in list_checkpoints(state_dir, job_id):
        folder, name = state_dir.checkpoints(job_id), checkpoint.name
        there = {one.name: one for one in checkpoint.files}
        modified_s = 0.0
        for file in walk(state_dir, folder / name, f"{CHECKPOINTS}/{name}", MOST_DEPTH):
            saved = there.pop(PurePosixPath(file.path).name, None)
            modified_s = max(modified_s, file.modified_s)
            yield replace(file, sha256=None if saved is None else saved.sha256)
        for one in there.values() if state_dir.storage is not None else ():
            yield KeptFile(f"{CHECKPOINTS}/{name}/{one.name}", one.size, modified_s, one.sha256, one.sha256)


def list_logs(state_dir: StateDir, job_id: str) -> Iterator[KeptFile]:
    """The log of each rank, whole, what was recorded, and the notes on attempts."""
    for rank in job_logs.list_ranks(state_dir, job_id):
        with job_logs.open_log(state_dir, job_id, rank) as log:
            if log.pieces:
                modified_s = os.fstat(log.pieces[-1].file.fileno()).st_mtime
                version = f"{log.begin:x}"  # it only grows, but for what is dropped at its beginning
                yield KeptFile(f"{LOGS}/{name_log(rank)}", log.end - log.begin, modified_s, version)
    for file in walk(state_dir, state_dir.logs(job_id), LOGS, MOST_DEPTH):
        if file.path in (f"{LOGS}/metrics.jsonl", f"{LOGS}/{NOTES}"):
            yield KeptFile(file.path, file.size, file.modified_s, "0")  # it only grows
