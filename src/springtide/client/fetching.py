"""Files of a job brought here: over HTTP, from where an earlier attempt broke off, checked against their hashes."""

import fcntl
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from springtide.client.http_connections import HttpCaller, HttpResponse, TransportError
from springtide.client.replies import CheckpointInfo, KeptFileInfo
from springtide.errors import InputError, ServerError

if TYPE_CHECKING:
    from concurrent.futures import Future

WEIGHTS = "model.safetensors"
MANIFEST = "manifest.json"
TRIES = 3
CHUNK_BYTES = 1 << 20
MOST_PIECES = 16  # that wait to be hashed


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


class ArrivalHash:
    """The SHA-256 of a file that arrives, found meanwhile by another thread: it takes about as long as the transfer.

    What has come earlier is read before the rest is asked for: a server does not wait for a client that takes nothing.
    """

    def __init__(self, partial: Path) -> None:
        from concurrent.futures import ThreadPoolExecutor  # 10 ms that other commands need not wait

        self.sign = hashlib.sha256()
        self.size = 0
        with partial.open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                self.sign.update(piece)
                self.size += len(piece)
        self.thread = ThreadPoolExecutor(1)
        self.open: deque[Future[None]] = deque()

    def add(self, piece: bytes) -> None:
        """Take in a piece; waits where too many lie in memory already."""
        self.size += len(piece)
        self.open.append(self.thread.submit(self.sign.update, piece))
        while len(self.open) > MOST_PIECES:
            self.open.popleft().result()

    def find(self) -> str:
        """The hash of all that has come."""
        while self.open:
            self.open.popleft().result()
        return self.sign.hexdigest()

    def __enter__(self) -> "ArrivalHash":
        return self

    def __exit__(self, *exception: object) -> None:
        self.thread.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Brings files here over a connection to a server; `on_bytes` hears of every piece."""

    http: HttpCaller
    find_error: Callable[[HttpResponse], Exception]
    on_bytes: Callable[[int], None]
    #: Hears of every piece too, and what is in it.
    on_piece: Callable[[bytes], None] = lambda piece: None

    def fetch(self, path: str, target: Path, sha256: str) -> None:
        """Bring one file here, whole and with the hash that was told, or not at all."""
        if target.is_file() and hash_file(target) == sha256:
            return
        with hold(target.with_name(f"{target.name}.part")) as partial:
            self.fetch_rest(path, partial, target.name, sha256)
            partial.replace(target)

    def fetch_version(self, path: str, target: Path, told: KeptFileInfo) -> None:
        """Bring one file here as it was when it was listed; what is here already stays."""
        modified_s = told.modified.timestamp()
        if target.is_file() and (target.stat().st_size, target.stat().st_mtime) == (told.size, modified_s):
            return
        with hold(target.with_name(f"{target.name}.{told.version}.part")) as partial:
            self.fetch_rest(path, partial, target.name, told.sha256, {"If-Match": f'"{told.version}"'})
            partial.replace(target)
            os.utime(target, (modified_s, modified_s))

    def fetch_rest(
        self, path: str, partial: Path, name: str, sha256: str | None, headers: dict[str, str] | None = None
    ) -> None:
        """Bring what is missing of a file here; one that does not have the hash that was told is thrown away."""
        if sha256 is None:
            self.insist(path, partial, name, headers)
            return
        with ArrivalHash(partial) as sign:
            replace(self, on_piece=sign.add).insist(path, partial, name, headers)
            found = sign.find()
        if found != sha256 or measure(partial) != sign.size:  # or what is here is not what came
            partial.unlink()
            raise ServerError(f"{name} did not arrive with the hash {sha256}; it was thrown away: try again")

    def insist(self, path: str, partial: Path, name: str, headers: dict[str, str] | None = None) -> None:
        """Bring what is missing of a file here, in several attempts if the connection breaks."""
        for attempt in range(TRIES):
            try:
                self.append_rest(path, partial, headers)
                return
            except TransportError as error:
                if attempt == TRIES - 1:
                    raise ServerError(
                        f"the transfer of {name} broke off ({error}); the same command goes on from there"
                    ) from None

    def append_rest(self, path: str, partial: Path, headers: dict[str, str] | None = None) -> None:
        """Bring what is missing of a file here."""
        wanted = {"Range": f"bytes={measure(partial)}-", **(headers or {})}
        with self.http.stream("GET", path, headers=wanted) as response:
            if response.status_code >= 400:
                raise self.find_error(response)
            with partial.open("ab") as file:
                for piece in response.iter_raw():
                    file.write(piece)
                    self.on_piece(piece)
                    self.on_bytes(len(piece))


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


def choose_files(name: str, found: Iterable[KeptFileInfo], wanted: Sequence[str]) -> list[KeptFileInfo]:
    """The files that are wanted: by path, by a pattern as shells have them, or all below a folder."""
    listed = list(found)
    chosen: dict[str, KeptFileInfo] = {}
    for text in wanted:
        folder = text.rstrip("/")
        hits = [one for one in listed if fnmatchcase(one.path, folder) or one.path.startswith(f"{folder}/")]
        if not hits:
            raise InputError(f"{name} has no file {text!r}; list them with: springtide ls {name}")
        chosen |= {one.path: one for one in hits}
    return list(chosen.values())


def fetch_kept(
    transfer: Transfer, path: str, relist: Callable[[], list[KeptFileInfo]], files: Iterable[KeptFileInfo], out: Path
) -> list[Path]:
    """Files of a job below a folder, each at its path; one that changes meanwhile is brought again as it is then."""
    brought: list[Path] = []
    for file in files:
        target = out.joinpath(*check_parts(file.path))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write {target.parent}: {error.strerror}; give --out a folder of yours") from None
        fetch_newest(transfer, path, relist, file, target)
        brought.append(target)
    return brought


def fetch_newest(
    transfer: Transfer, path: str, relist: Callable[[], list[KeptFileInfo]], file: KeptFileInfo, target: Path
) -> None:
    """A file as it is listed, or as it is listed after it has changed."""
    for _ in range(TRIES):
        try:
            transfer.fetch_version(f"{path}/{quote(file.path)}", target, file)
            return
        except InputError:
            newer = next((one for one in relist() if one.path == file.path), None)
            if newer is None or newer.version == file.version:
                raise
            file = newer
    raise ServerError(f"{file.path} changes faster than it can be read; fetch it when the job has ended")


def check_parts(path: str) -> list[str]:
    """The parts of a path that a server has told; one that leads elsewhere is refused."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or os.sep in part or "\0" in part for part in parts):
        raise ServerError(f"the server names a file {path!r}, which would lie outside the folder; it was not fetched")
    return parts


@contextmanager
def hold(partial: Path) -> Iterator[Path]:
    """Keep other commands from writing to the beginning of a file, which is here from now on."""
    with partial.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another command is fetching {partial.name.removesuffix('.part')} to {partial.parent}; wait for it, "
                "or give --out another folder"
            ) from None
        try:
            yield partial
        finally:
            if measure(partial) == 0:  # nothing has come, or it has another name by now
                partial.unlink(missing_ok=True)


def measure(path: Path) -> int:
    """How much of a file is here."""
    return path.stat().st_size if path.exists() else 0


def hash_file(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
