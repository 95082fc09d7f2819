"""Checkpoints of jobs as the server hands them out: listed by their manifests, opened file by file.

A job's processes own its folder, so nothing there is believed to be what its name says: no link is followed, and a
manifest is read as data. Only what a manifest names can be opened. What a checkpoint holds says `training.state`.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from springtide.control.storage.private_paths import list_inside, open_plain
from springtide.control.storage.state_dir import StateDir
from springtide.core.checkpoint_names import CheckpointName, parse_name
from springtide.objects.object_store import ObjectStore

MANIFEST = "manifest.json"
MOST_MANIFEST_BYTES = 1 << 20
NAME = re.compile(r"[a-z]+\.(safetensors|json)")
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file of a checkpoint, as its manifest says."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint that is whole: its manifest, which was written last, is there."""

    #: Its folder.
    name: str
    step: int
    torch: str
    files: tuple[SavedFile, ...]


def list_checkpoints(state_dir: StateDir, job_id: str) -> list[SavedCheckpoint]:
    """The checkpoints of a job, newest first; folders without a manifest that can be read are left out.

    Of several of one step, which two starts have written, there is the newest.
    """
    found: dict[int, SavedCheckpoint] = {}
    for name in list_names(state_dir, job_id):
        checkpoint = None if name.step in found else read_named(state_dir, job_id, name)
        if checkpoint is not None:
            found[name.step] = checkpoint
    return list(found.values())


def list_names(state_dir: StateDir, job_id: str) -> list[CheckpointName]:
    """The names of folders of checkpoints, newest first."""
    inside = list_inside(state_dir.root, state_dir.checkpoints(job_id))
    names = [parse_name(name) for name, is_folder in inside.items() if is_folder]
    return sorted((name for name in names if name is not None), reverse=True)


def read_checkpoint(state_dir: StateDir, job_id: str, step: int) -> SavedCheckpoint | None:
    """The checkpoint of a step, if there is one with a manifest that can be believed."""
    named = (read_named(state_dir, job_id, name) for name in list_names(state_dir, job_id) if name.step == step)
    return next((checkpoint for checkpoint in named if checkpoint is not None), None)


def read_named(state_dir: StateDir, job_id: str, name: CheckpointName) -> SavedCheckpoint | None:
    """The checkpoint in a folder, if it has a manifest that can be believed."""
    try:
        with open_inside(state_dir, job_id, str(name), MANIFEST) as file:
            manifest = json.loads(file.read(MOST_MANIFEST_BYTES))
        files = tuple(read_entry(file, entry) for file, entry in sorted(manifest["files"].items()))
        return SavedCheckpoint(str(name), name.step, str(manifest["torch"]), files)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def read_entry(name: str, entry: Mapping[str, Any]) -> SavedFile:
    """A line of a manifest; ValueError where it is no file of a checkpoint."""
    if not NAME.fullmatch(name) or not SHA256.fullmatch(entry["sha256"]):
        raise ValueError(f"{name} is no file of a checkpoint")
    return SavedFile(name, int(entry["bytes"]), entry["sha256"])


def open_file(state_dir: StateDir, job_id: str, checkpoint: SavedCheckpoint, file: str) -> BinaryIO:
    """A file of a checkpoint, to read; OSError where it is not there or is no plain file."""
    url = None if file == MANIFEST else find_remote(state_dir, job_id, checkpoint)
    return open_inside(state_dir, job_id, checkpoint.name, file) if url is None else ObjectStore(url).open(file)


def open_inside(state_dir: StateDir, job_id: str, name: str, file: str) -> BinaryIO:
    """A file in the folder of a checkpoint, or of the receipt of one."""
    return open_plain(state_dir.root, state_dir.checkpoints(job_id) / name / file)


def find_remote(state_dir: StateDir, job_id: str, checkpoint: SavedCheckpoint) -> str | None:
    """Where a checkpoint lies in object storage, as its receipt says; never outside what is this job's."""
    own = state_dir.job_url(job_id, "checkpoints")
    if own is None:
        return None
    with open_inside(state_dir, job_id, checkpoint.name, MANIFEST) as file:
        told = json.loads(file.read(MOST_MANIFEST_BYTES)).get("url")
    name = None if told is None else parse_name(str(told).removeprefix(f"{own}/"))
    if name is None:
        return None
    return f"{own}/{name}"


def measure(file: BinaryIO) -> int:
    """The size of an open file."""
    known = getattr(file, "size", None)  # of an object
    return os.fstat(file.fileno()).st_size if known is None else int(known)
