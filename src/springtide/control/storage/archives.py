"""Archives at the server: taken in under names of their own, read by a process of its own, named by their content.

Packing is the client's business.
"""

import hashlib
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from springtide.control.storage import archive_reader
from springtide.control.storage.archive_reader import REFUSED, UNWRITTEN
from springtide.core.archive_format import LIMIT_BYTES, MOST_FILES
from springtide.errors import ArchiveError, StateError
from springtide.executors.local.paths import open_private

UPLOADS = ".upload-"  # so begin the names of what is not whole yet
READ_S = 120.0
#: What uploads leave free of the disk: the smaller of the two, for what the database and running jobs write.
LEAST_FREE_BYTES, LEAST_FREE_SHARE = 1 << 30, 0.05
READER = [sys.executable, "-I", "-m", archive_reader.__name__]


class ArchiveUpload:
    """Bytes on their way to the disk, and their hash."""

    def __init__(self, code: Path) -> None:
        code.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = code / f"{UPLOADS}{secrets.token_hex(8)}.tar"
        self.file = open(self.path, "xb", opener=open_private)  # noqa: SIM115 - closed by `take_upload`
        self.sign = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Take in the next bytes."""
        self.file.write(data)
        self.sign.update(data)

    def unpack(self, folder: Path, limit_bytes: int = LIMIT_BYTES, keep: Callable[[], None] = lambda: None) -> None:
        """Write the files of the archive below a folder named by its hash, completely or not at all.

        Before that the archive is kept elsewhere, if need be: whoever finds the folder sends nothing again.
        """
        self.file.flush()
        if self.sign.hexdigest() != folder.name:
            raise ArchiveError(f"the archive has the SHA-256 {self.sign.hexdigest()}, not {folder.name}")
        if folder.exists():
            keep()
            return
        partial = folder.with_name(self.path.stem)
        partial.mkdir(mode=0o700)
        try:
            self.read(partial, limit_bytes)
            keep()
            partial.chmod(0o755)  # jobs with `run_as` read it; who may come so far, the folder above says
            publish(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def read(self, folder: Path, limit_bytes: int) -> None:
        """Have the reader write the files into a folder."""
        command = [*READER, str(folder), str(MOST_FILES), str(limit_bytes)]
        try:
            with self.path.open("rb") as source:
                done = subprocess.run(command, stdin=source, capture_output=True, timeout=READ_S, cwd="/")
        except subprocess.TimeoutExpired:
            raise ArchiveError(f"the archive could not be read within {READ_S:g} s; send a smaller one") from None
        told = done.stdout.decode(errors="replace")
        if done.returncode == REFUSED:
            raise ArchiveError(told)
        if done.returncode == UNWRITTEN:
            raise StateError(f"the files of the archive cannot be written ({told}); free some space: springtide gc")
        if done.returncode:
            raise ArchiveError("the archive takes more time or memory to read than it may; send a smaller one")


def find_most_body(limit_bytes: int) -> int:
    """How long a body may be that holds files of so many bytes: names and gaps between files take room, too."""
    return 2 * limit_bytes


def find_need(length: int | None, limit_bytes: int) -> int:
    """What an upload may take of the disk: for a moment its files lie there beside it. None: it does not say how long
    it is.
    """
    size = find_most_body(limit_bytes) if length is None else length
    return size + min(size, limit_bytes)


def check_room(code: Path, need: int, reserved: int = 0) -> None:
    """Refuse an upload that would leave too little of the disk, beside what is reserved for others under way."""
    code.mkdir(parents=True, exist_ok=True, mode=0o700)
    usage = shutil.disk_usage(code)
    least = min(LEAST_FREE_BYTES, int(LEAST_FREE_SHARE * usage.total))
    if usage.free - need - reserved < least:
        others = f", {reserved >> 20} MiB of it for other uploads" if reserved else ""
        raise StateError(
            f"{usage.free >> 20} MiB are free on the disk of the state directory{others}; beside the {need >> 20} MiB "
            f"of an upload and its files {least >> 20} MiB are to stay free; nothing was done; free some: springtide gc"
        )


@contextmanager
def take_upload(code: Path) -> Iterator[ArchiveUpload]:
    """A place for an upload beside the unpacked archives; nothing of it is left afterwards."""
    upload = ArchiveUpload(code)
    try:
        yield upload
    finally:
        upload.file.close()
        upload.path.unlink(missing_ok=True)


def unpack(data: bytes, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
    """Write the files of an archive in memory below a folder named by its hash."""
    if folder.exists():
        return
    with take_upload(folder.parent) as upload:
        upload.write(data)
        upload.unpack(folder, limit_bytes)


def publish(partial: Path, folder: Path) -> None:
    """Give a whole folder its name, unless somebody who sent the same was faster."""
    try:
        partial.rename(folder)
    except OSError:
        if not folder.exists():
            raise
