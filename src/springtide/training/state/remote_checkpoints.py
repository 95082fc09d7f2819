"""Checkpoints in object storage: uploaded from memory behind training's back, tried again while the store fails.

A checkpoint is some objects under `step-<number>-g<generation>-<writer>/`, the manifest last and created only if it is
not there: without one nothing counts. Names are of one writer, so nobody overwrites another's. A copy of each manifest
lies in the job's own folder, as a receipt for those who only ask how far a job was saved.
"""

import contextlib
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from springtide.core.checkpoint_names import CheckpointName, parse_name
from springtide.errors import CheckpointError
from springtide.objects.object_store import ObjectStore
from springtide.training.state.checkpoints import (
    MANIFEST,
    OLD_S,
    READING,
    REST,
    SHAPE,
    UNFINISHED,
    WEIGHTS,
    Checkpoints,
    DamagedError,
    Facts,
    encode,
    make_manifest,
)
from springtide.training.state.state_tree import Tensors

DAMAGED = "damaged"  # beside a manifest that is not to be believed
#: Seconds before each next try to write; then the checkpoint is given up, and the next one is tried in its turn.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)


class RemoteCheckpoints(Checkpoints):
    """The checkpoints of one job below a URL, with receipts in a folder."""

    def __init__(
        self,
        store: ObjectStore,
        receipts: Path,
        keep: int,
        generation: int = 1,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(receipts, keep, max(1, generation))
        self.store = store
        self.sleep = sleep

    @property
    def place(self) -> str:
        """Where they lie, for sentences."""
        return self.store.url

    def clean(self) -> None:
        """Remove what writers of earlier starts left unfinished, and what is old; what a later one writes stays."""
        super().clean()
        objects = self.store.list()
        whole = find_whole(objects)
        for name in find_names(objects) - whole:
            if name.generation < self.generation or self.find_age_s(name) >= OLD_S:
                self.store.remove(str(name))

    def find_age_s(self, name: CheckpointName) -> float:
        """Seconds since an object of a checkpoint was written last; 0 if that is not told."""
        with contextlib.suppress(OSError):
            return min(map(self.store.find_age_s, self.store.list(str(name))), default=0.0)
        return 0.0

    def put(self, text: str, tensors: tuple[Tensors, Tensors], step: int, facts: Facts) -> None:
        """Write a checkpoint; what the store refuses is tried again for a while."""
        for pause_s in (*PAUSES_S, None):
            try:
                self.upload(text, tensors, step, facts)
            except OSError as error:
                if pause_s is None:
                    raise
                self.trouble = f"checkpoint in {self.place} could not be written yet: {error}"
                self.sleep(pause_s)
            else:
                return

    def upload(self, text: str, tensors: tuple[Tensors, Tensors], step: int, facts: Facts) -> None:
        """Write the objects of a checkpoint, and when all are there its manifest."""
        name, (weights, rest) = str(self.name(step)), tensors
        files = {
            WEIGHTS: self.send(f"{name}/{WEIGHTS}", encode(weights)),
            REST: self.send(f"{name}/{REST}", encode(rest)),
            SHAPE: self.send(f"{name}/{SHAPE}", [text.encode()]),
        }
        manifest = make_manifest(step, facts, files)
        if not self.store.create(f"{name}/{MANIFEST}", manifest) and self.store.read(f"{name}/{MANIFEST}") != manifest:
            raise CheckpointError(f"{self.place}/{name} was written by another process; it stays as it is")
        self.keep_receipt(step, manifest)

    def send(self, name: str, chunks: Iterable[bytes | memoryview]) -> dict[str, Any]:
        """Write an object; returns its size and hash."""
        sign = hashlib.sha256()

        def hashed() -> Iterator[bytes | memoryview]:
            for chunk in chunks:
                sign.update(chunk)
                yield chunk

        return {"bytes": self.store.write(name, hashed()), "sha256": sign.hexdigest()}

    def keep_receipt(self, step: int, manifest: bytes) -> None:
        """Note in the job's own folder that a checkpoint is saved, and where."""
        told = {**json.loads(manifest), "url": f"{self.place}/{self.name(step)}"}
        folder = self.folder / str(CheckpointName(0, step))
        partial = self.folder / f"{UNFINISHED}g{self.generation}-{self.token}"
        folder.mkdir(exist_ok=True)
        partial.write_text(json.dumps(told, indent=1))
        partial.replace(folder / MANIFEST)
        for old in Checkpoints.names(self)[self.keep :]:
            shutil.rmtree(self.folder / str(old), ignore_errors=True)

    def remove(self, name: CheckpointName) -> None:
        """Remove a checkpoint: its manifest first, so that half of one never counts."""
        self.store.remove(f"{name}/{MANIFEST}")
        self.store.remove(str(name))

    def names(self) -> list[CheckpointName]:
        """The checkpoints that have a manifest and were not found damaged, newest first."""
        return sorted(find_whole(self.store.list()), reverse=True)

    @contextmanager
    def fetch(self, name: CheckpointName) -> Iterator[Path]:
        """A checkpoint as a folder on this machine, for as long as it takes to read it."""
        with tempfile.TemporaryDirectory(prefix=f"{READING}g{self.generation}-", dir=self.folder) as scratch:
            folder = Path(scratch) / str(name)
            folder.mkdir()
            self.store.download(f"{name}/{MANIFEST}", folder / MANIFEST)
            for file in read_names(name, folder / MANIFEST):
                try:
                    self.store.download(f"{name}/{file}", folder / file)
                except FileNotFoundError as error:
                    raise DamagedError(f"{name} is damaged: {error}") from error
            yield folder

    def set_aside(self, name: CheckpointName, why: str) -> None:
        """Mark a checkpoint that was passed over."""
        self.store.create(f"{name}/{DAMAGED}", why.encode())


def find_names(objects: Iterable[str]) -> set[CheckpointName]:
    """The checkpoints of which there is anything."""
    found = (parse_name(name.partition("/")[0]) for name in objects if "/" in name)
    return {name for name in found if name is not None}


def find_whole(objects: Iterable[str]) -> set[CheckpointName]:
    """The checkpoints that have a manifest and no mark of damage."""
    there = set(objects)
    return {name for name in find_names(there) if f"{name}/{MANIFEST}" in there and f"{name}/{DAMAGED}" not in there}


def read_names(name: CheckpointName, manifest: Path) -> list[str]:
    """The files that a manifest names: plain names, since they become paths here."""
    try:
        told: Mapping[str, Any] = json.loads(manifest.read_text())["files"]
        names = [str(file) for file in told]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{name} is damaged: {error}") from error
    if any("/" in file or file.startswith(".") for file in names):
        raise DamagedError(f"{name} is damaged: its manifest names files elsewhere")
    return names
