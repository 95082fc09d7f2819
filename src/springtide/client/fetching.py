"""Files of a job brought here: over HTTP, from where an earlier attempt broke off, checked against their hashes."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from springtide.client.replies import CheckpointInfo
from springtide.errors import InputError, ServerError

WEIGHTS = "model.safetensors"
MANIFEST = "manifest.json"
CHUNK_BYTES = 1 << 20
TRIES = 3


@dataclass(frozen=True, slots=True)
class Fetched:
    """A checkpoint that was brought here."""

    job: str
    step: int
    folder: Path
    files: tuple[Path, ...]

    @property
    def weights(self) -> Path:
        """The file that `safetensors.torch.load_file` reads and `load_state_dict` takes."""
        return self.folder / WEIGHTS


def choose_checkpoint(name: str, found: list[CheckpointInfo], step: int | None) -> CheckpointInfo:
    """The checkpoint of a step, or the newest."""
    if not found:
        raise InputError(f"{name} has no checkpoint yet; they are written while it trains, and when it ends")
    if step is None:
        return found[0]
    for one in found:
        if one.step == step:
            return one
    steps = ", ".join(str(one.step) for one in found)
    raise InputError(f"{name} has no checkpoint of step {step}; there are: {steps}")


@dataclass(frozen=True, slots=True)
class Transfer:
    """Brings files here over one line to a server; `on_bytes` hears of every piece."""

    http: httpx.Client
    find_error: Callable[[httpx.Response], Exception]
    on_bytes: Callable[[int], None]

    def fetch(self, path: str, target: Path, sha256: str) -> None:
        """Bring one file here, whole and with the hash that was told, or not at all."""
        if target.is_file() and hash_file(target) == sha256:
            return
        partial = target.with_name(f"{target.name}.part")
        for attempt in range(TRIES):
            try:
                self.append_rest(path, partial)
                break
            except httpx.TransportError as error:
                if attempt == TRIES - 1:
                    raise ServerError(
                        f"the transfer of {target.name} broke off ({error}); the same command goes on from there"
                    ) from None
        if hash_file(partial) != sha256:
            partial.unlink()
            raise ServerError(f"{target.name} did not arrive with the hash {sha256}; it was thrown away: try again")
        partial.replace(target)

    def append_rest(self, path: str, partial: Path) -> None:
        """Bring what is missing of a file here."""
        have = partial.stat().st_size if partial.exists() else 0
        with self.http.stream("GET", path, headers={"Range": f"bytes={have}-"}) as response:
            if response.status_code >= 400:
                response.read()
                raise self.find_error(response)
            with partial.open("ab") as file:
                for chunk in response.iter_bytes(CHUNK_BYTES):
                    file.write(chunk)
                    self.on_bytes(len(chunk))


def fetch_checkpoint(transfer: Transfer, job: str, path: str, told: CheckpointInfo, out: Path, whole: bool) -> Fetched:
    """The weights of a checkpoint in a folder of its own below `out`, or all of it, to be resumed from."""
    folder = out / f"step-{told.step:09d}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}; give --out a folder of yours") from None
    wanted = [one for one in told.files if whole or one.name == WEIGHTS]
    for one in wanted:
        transfer.fetch(f"{path}/{told.step}/{one.name}", folder / one.name, one.sha256)
    files = [folder / one.name for one in wanted]
    if whole:  # last, as it is written: it says that the others are there
        manifest = folder / MANIFEST
        manifest.unlink(missing_ok=True)
        transfer.append_rest(f"{path}/{told.step}/{MANIFEST}", manifest)
        files.append(manifest)
    return Fetched(job, told.step, folder, tuple(files))


def hash_file(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
