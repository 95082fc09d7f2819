"""The code of jobs for hosts that do not see the lead's home: packed once, named by its digest, sent piece by piece."""

import hashlib
import io
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

from springtide.errors import ExecutorError
from springtide.executors.hosts.host_messages import CodePart, encode

#: Of one message: beats pass between two of them.
PART_BYTES = 1 << 20
#: An archive that no host has asked for in so long, and no start has named, goes; it is packed again if need be.
KEPT_S = 3600.0


class PackedCode:
    """Archives in a folder of the lead's, by digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: By the folder that was packed, which never changes: it is named by its content.
        self.digests: dict[str, str] = {}
        #: When each archive was last named or read.
        self.used_s: dict[str, float] = {}

    def pack(self, source: str) -> str:
        """Have a folder packed; returns the digest of the archive."""
        if source not in self.digests:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            building, sign = self.folder / "packing", hashlib.sha256()
            with building.open("wb") as file:
                for chunk in write_archive(Path(source)):
                    sign.update(chunk)
                    file.write(chunk)
            building.replace(self.folder / sign.hexdigest())
            self.digests[source] = sign.hexdigest()
        self.used_s[self.digests[source]] = time.monotonic()
        self.prune(time.monotonic())
        return self.digests[source]

    def prune(self, now_s: float) -> None:
        """Remove the archives that nobody has used for a while."""
        past = {digest for digest, used_s in self.used_s.items() if now_s - used_s >= KEPT_S}
        for digest in past:
            (self.folder / digest).unlink(missing_ok=True)
            del self.used_s[digest]
        self.digests = {source: digest for source, digest in self.digests.items() if digest not in past}

    def read(self, digest: str, offset: int) -> CodePart:
        """A piece of an archive; none of an earlier lead's is here."""
        try:
            with (self.folder / digest).open("rb") as file:
                self.used_s[digest] = time.monotonic()
                file.seek(offset)
                return CodePart("code", digest, encode(file.read(PART_BYTES)))
        except OSError as error:
            return CodePart("code", digest, "", f"the lead has no code {digest[:12]} ({error.strerror})")


def write_archive(folder: Path) -> Iterator[bytes]:
    """A tar archive of the plain files below a folder, the same bytes for the same files."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            facts = tarfile.TarInfo(str(path.relative_to(folder)))
            facts.size, facts.mode = path.stat().st_size, path.stat().st_mode & 0o755
            with path.open("rb") as file:
                archive.addfile(facts, file)
            yield take(held)
    yield take(held)


def take(held: io.BytesIO) -> bytes:
    """What was written so far; nothing is left of it."""
    written = held.getvalue()
    held.seek(0)
    held.truncate()
    return written


def unpack(archive: Path, digest: str, folder: Path) -> None:
    """Write the files of an archive below a folder that is not there, completely or not at all."""
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest:
        came = f"the code came as {found[:12]}, it is {digest[:12]}"
        raise ExecutorError(f"{came}; the connection to the lead is damaged")
    partial = folder.with_name(f"{folder.name}.partial")
    with tarfile.open(archive) as content:
        content.extractall(partial, filter="data")
    partial.mkdir(exist_ok=True)  # of no files
    partial.rename(folder)
