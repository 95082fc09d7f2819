"""Checkpoints on disk: written behind training's back, whole or not at all, and checked before they are believed.

A checkpoint is a folder `step-<number>` with the weights and the rest of the state as safetensors, their shape as
JSON, and a manifest with the hash of each file, written last. It is built under a temporary name, synced, and renamed.
Where several hosts could write, its name says who did (`core.checkpoint_names`). What is in a state is in `run_state`,
how checkpoints lie in object storage in `remote_checkpoints`.
"""

import hashlib
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import torch
from safetensors.torch import load_file

from springtide.core.checkpoint_names import CheckpointName, parse_name
from springtide.errors import CheckpointError
from springtide.training.state import state_tree
from springtide.training.state.disks import is_disk_low
from springtide.training.state.state_tree import Tensors

MANIFEST = "manifest.json"
UNFINISHED, READING = ".writing-", ".reading-"
#: Where what is unfinished says of which generation it is.
OF_GENERATION = re.compile(r"(?:^|-)g(?P<generation>[0-9]{1,15})-")
#: Nobody still writes what is older; clocks may be hours apart.
OLD_S = 24 * 3600.0
WEIGHTS = "model.safetensors"
REST = "state.safetensors"
SHAPE = "state.json"
PREFIX = "/model/"
CHUNK_BYTES = 4 << 20
LOWEST_PRIORITY = 19
#: How much of the code's fingerprint tells two apart in an error; the manifest holds all of it.
SHOWN_DIGITS = 12

#: The data types of safetensors, by torch's names and by its own.
TORCH_TYPES = "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 complex64 bool"
TORCH_TYPES += " int64 int32 int16 int8 uint64 uint32 uint16 uint8"
SAFE_TYPES = "F64 F32 F16 BF16 F8_E4M3 F8_E5M2 C64 BOOL I64 I32 I16 I8 U64 U32 U16 U8"
TYPE_NAMES = {getattr(torch, ours): safe for ours, safe in zip(TORCH_TYPES.split(), SAFE_TYPES.split(), strict=True)}


@dataclass(frozen=True, slots=True)
class Facts:
    """What must agree between the run that saved and the run that resumes; `code` may be waived."""

    logical_workers: int
    seed: int
    samples: int
    batch_size: int
    accumulate: int
    shuffle: bool
    drop_last: bool
    level: str
    threads: int
    code: str


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that was read and found whole, the torch that wrote it, and what was wrong with newer ones."""

    step: int
    torch: str
    state: dict[str, Any]
    passed_over: tuple[str, ...]


class Checkpoints:
    """The checkpoints of one job, in one folder.

    `generation` is that of the job's last start where another start could overlap with it, else 0.
    """

    def __init__(self, folder: Path, keep: int, generation: int = 0) -> None:
        self.folder = folder
        self.keep = max(1, keep)
        self.generation = generation
        self.token = token_hex(4)  # pids of two hosts may be the same
        self.writer: threading.Thread | None = None
        self.writing: int | None = None
        self.failure: Exception | None = None
        #: Why what is being written was not written yet, though it is tried again; told once.
        self.trouble = ""
        self.staging: Tensors = {}
        #: What was last copied to be written.
        self.last: tuple[str, tuple[Tensors, Tensors], int, Facts, bool] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def place(self) -> str:
        """Where they lie, for sentences."""
        return str(self.folder)

    def name(self, step: int) -> CheckpointName:
        """What the checkpoint of a step that is written here is called."""
        return CheckpointName(self.generation, step, self.token if self.generation else "")

    def name_unfinished(self, step: int) -> str:
        """What it is called while it is written; by whom can be told where others could write too."""
        return f"{UNFINISHED}{self.name(step) if self.generation else f'{step}-{self.token}'}"

    def clean(self) -> None:
        """Remove what a crashed process left unfinished: folders, and notes that are single files.

        What a later start writes or reads is not ours to judge, unless it is old: others may have left it here.
        """
        for leftover in (*self.folder.glob(f"{UNFINISHED}*"), *self.folder.glob(f"{READING}*")):
            if find_generation(leftover.name) > self.generation and find_age_s(leftover) < OLD_S:
                continue
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self.writer is not None and self.writer.is_alive()

    def save(self, state: dict[str, Any], step: int, facts: Facts, urgent: bool = False) -> None:
        """Copy the state and write it in the background; training waits for the copy only.

        The writer runs only where training leaves room, unless somebody waits for it.
        """
        self.wait()
        text, tensors = state_tree.take_apart(state)
        files = split_weights(self.stage(tensors), state.get("weights_file", {}))
        self.last = (text, files, step, facts, urgent)
        self.write_again()

    def write_again(self) -> None:
        """Write in the background what was last copied, as for the first time."""
        assert self.last is not None
        self.trouble = ""  # of what was written before, if it was written before anybody asked
        self.writer = threading.Thread(target=self.write, args=self.last, name="springtide-checkpoint", daemon=False)
        self.writing = self.last[2]
        self.writer.start()

    def wait(self) -> int | None:
        """The step that is on disk now and was not before; waits for it, and raises what went wrong."""
        if self.writer is not None:
            self.writer.join()
            self.writer = None
        step, self.writing = self.writing, None
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise CheckpointError(f"checkpoint in {self.place} could not be written: {failure}") from failure
        return step

    def stage(self, tensors: Tensors) -> Tensors:
        """Copies of the tensors in memory that is kept from one checkpoint to the next."""
        staging: Tensors = {}
        for path, tensor in tensors.items():
            place = self.staging.get(path)
            if place is None or place.shape != tensor.shape or place.dtype != tensor.dtype:
                place = torch.empty(tensor.shape, dtype=tensor.dtype)
            staging[path] = place.copy_(tensor)
        self.staging = staging
        return staging

    def write(self, text: str, tensors: tuple[Tensors, Tensors], step: int, facts: Facts, urgent: bool) -> None:
        """Write a checkpoint and drop the oldest beyond the number kept; where the disk is nearly full, drop first."""
        try:
            if not urgent:
                yield_processor()
            if is_disk_low(self.folder):
                self.drop_beyond(1)
            self.put(text, tensors, step, facts)
            self.drop_beyond(self.keep)
        except Exception as error:  # whatever it is, the thread that trains must hear of it
            self.failure = error

    def put(self, text: str, tensors: tuple[Tensors, Tensors], step: int, facts: Facts) -> None:
        """Write a checkpoint, whole or not at all."""
        building = self.folder / self.name_unfinished(step)
        weights, rest = tensors
        try:
            building.mkdir(exist_ok=True)
            files = {
                WEIGHTS: write_bytes(building / WEIGHTS, encode(weights)),
                REST: write_bytes(building / REST, encode(rest)),
                SHAPE: write_bytes(building / SHAPE, [text.encode()]),
            }
            write_bytes(building / MANIFEST, [make_manifest(step, facts, files)])
            publish(building, self.folder / str(self.name(step)))
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)  # half a checkpoint would keep the disk full
            raise

    def drop_beyond(self, count: int) -> None:
        """Remove all but the newest few."""
        for old in self.names()[count:]:
            self.remove(old)

    def remove(self, name: CheckpointName) -> None:
        """Remove a checkpoint."""
        shutil.rmtree(self.folder / str(name), ignore_errors=True)

    def names(self) -> "list[CheckpointName]":
        """The checkpoints that have a manifest, newest first."""
        found = [parse_name(path.name) for path in self.folder.glob("step-*") if (path / MANIFEST).exists()]
        return sorted((name for name in found if name is not None), reverse=True)

    def catch_up(self) -> "list[CheckpointName]":
        """Have what is written here count as newer than what is there, which is returned.

        Another job, or a run by hand, that goes on in the same folder has a lower generation, or none. The next one
        above what is there, because who is replaced there must count less than who replaces him.
        """
        names = self.names()
        if names and names[0].generation > self.generation:
            self.generation = names[0].generation + 1
        return names

    def list(self) -> "list[Path]":
        """The folders of the checkpoints that have a manifest, newest first."""
        return [self.folder / str(name) for name in self.names()]

    @contextmanager
    def fetch(self, name: CheckpointName) -> Iterator[Path]:
        """A checkpoint as a folder."""
        yield self.folder / str(name)

    def load(self, facts: Facts, allow_code_change: bool) -> Saved | None:
        """The newest whole checkpoint, or None if there is none; a newer one that is not whole is passed over."""
        damaged: dict[CheckpointName, str] = {}
        for name in self.names():
            try:
                with self.fetch(name) as path:
                    manifest = check_files(path)
                    check_facts(f"{self.place}/{name}", manifest, facts, allow_code_change)
                    state = read_state(path)
            except DamagedError as error:
                damaged[name] = str(error)
                continue
            for one, why in damaged.items():
                self.set_aside(one, why)
            return Saved(int(manifest["step"]), manifest["torch"], state, tuple(damaged.values()))
        if damaged:
            raise CheckpointError(
                f"no checkpoint in {self.place} is whole ({'; '.join(damaged.values())}); nothing was overwritten: "
                "restore one, or start anew in another folder"
            )
        return None

    def set_aside(self, name: CheckpointName, why: str) -> None:
        """Rename a checkpoint that was passed over, so that it does not count among the newest that are kept."""
        aside = self.folder / f"damaged-{name}"
        shutil.rmtree(aside, ignore_errors=True)
        (self.folder / str(name)).rename(aside)


def find_generation(leftover: str) -> int:
    """The generation of the start that left something unfinished; 0 if its name does not tell."""
    match = OF_GENERATION.search(leftover.removeprefix(UNFINISHED).removeprefix(READING))
    return 0 if match is None else int(match["generation"])


def find_age_s(leftover: Path) -> float:
    """Seconds since something in it was written last; 0 of what has just gone."""
    try:
        newest_s = max(path.stat().st_mtime for path in (leftover, *leftover.rglob("*")))
    except OSError:
        return 0.0
    return time.time() - newest_s


class DamagedError(CheckpointError):
    """A checkpoint that is not as its manifest says."""


def make_manifest(step: int, facts: Facts, files: Mapping[str, Any]) -> bytes:
    """The manifest of a checkpoint."""
    manifest = {"schema": 1, "step": step, "torch": torch.__version__, **asdict(facts), "files": files}
    return json.dumps(manifest, indent=1).encode()


def split_weights(tensors: Tensors, form: Mapping[str, Any]) -> tuple[Tensors, Tensors]:
    """The tensors for the file of weights, which `load_state_dict` takes, and those for the rest.

    `form` names weights that have other names too (`aliases`), and buffers that are no weights (`transient`).
    """
    transient = {PREFIX + name for name in form.get("transient", ())}
    weights = {
        path.removeprefix(PREFIX): value
        for path, value in tensors.items()
        if path.startswith(PREFIX) and path not in transient
    }
    rest = {path: value for path, value in tensors.items() if not path.startswith(PREFIX) or path in transient}
    return {**weights, **{alias: weights[name] for alias, name in form.get("aliases", {}).items()}}, rest


def yield_processor() -> None:
    """Let this thread run only where training leaves room; Linux gives each thread a priority of its own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)


def publish(building: Path, final: Path) -> None:
    """Give a finished folder its name, for good even if the power fails now."""
    sync_folder(building)
    if final.exists():
        shutil.rmtree(final)
    building.rename(final)
    sync_folder(final.parent)


def sync_folder(path: Path) -> None:
    """Have a folder's entries on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: Path, chunks: Iterable[bytes | memoryview]) -> dict[str, Any]:
    """Write chunks to a file, synced, and return its size and hash.

    Hash and write both release the interpreter lock on chunks of this size, so training runs on.
    """
    sign = hashlib.sha256()
    size = 0
    with path.open("wb") as file:
        for chunk in chunks:
            sign.update(chunk)
            file.write(chunk)
            size += len(chunk)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": size, "sha256": sign.hexdigest()}


def encode(tensors: Tensors) -> Iterator[bytes | memoryview]:
    """The chunks of a safetensors file: header length, JSON header, raw data."""
    header: dict[str, Any] = {}
    offset = 0
    for path, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if tensor.dtype not in TYPE_NAMES:
            raise ValueError(
                f"state at {path} is {tensor.dtype}, which safetensors cannot hold; keep it as another type"
            )
        header[path] = {
            "dtype": TYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for tensor in tensors.values():
        if tensor.numel():
            raw = memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
            for start in range(0, len(raw), CHUNK_BYTES):
                yield raw[start : start + CHUNK_BYTES]


def check_files(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose files are all there and unchanged."""
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        for name, expected in manifest["files"].items():
            with (path / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != expected["sha256"]:
                raise DamagedError(f"{path.name}/{name} does not have the hash in its manifest")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{path.name} is damaged: {error}") from error
    return manifest


def check_facts(path: str, manifest: dict[str, Any], facts: Facts, allow_code_change: bool) -> None:
    """Refuse a checkpoint of another job: it would resume, but not to the promised bits."""
    for name, wanted in asdict(facts).items():
        found = manifest.get(name, wanted)  # manifests of before a fact was written do not name it
        if found == wanted or (name == "code" and allow_code_change):
            continue
        if name == "code":
            raise CheckpointError(
                f"{path} was written by other code ({found[:SHOWN_DIGITS]}) than this script's "
                f"({wanted[:SHOWN_DIGITS]}); the bits would be of neither. Resume with the old code, start anew in "
                "another folder, or if you know that it does not matter allow it: springtide submit "
                "--allow-code-change, or SPRINGTIDE_ALLOW_CODE_CHANGE=1 for a script run by hand"
            )
        raise CheckpointError(
            f"{path} has {name} {found}, this run has {wanted}; {name} is fixed for a job's life: use {found}, or "
            "start anew in another folder"
        )


def read_state(path: Path) -> dict[str, Any]:
    """The state in a checkpoint."""
    weights = {f"/model/{name}": tensor for name, tensor in load_file(path / WEIGHTS).items()}
    # Weights are copied into the model. The rest stays as it is, and where a tensor begins decides how sums over it are
    # split between lanes, and so its bits: in memory as torch gives it, not at some byte of a mapped file.
    tensors = weights | {name: tensor.clone() for name, tensor in load_file(path / REST).items()}
    state: dict[str, Any] = state_tree.put_together((path / SHAPE).read_text(), tensors)
    return state
