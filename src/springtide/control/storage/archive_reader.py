"""Reads an uploaded archive and writes its files: a tar of regular files at relative paths, and nothing else.

Not Python's `tarfile`, which takes far more (sparse files, links, headers that lie about sizes) and in some versions
loops on a negative size (CVE-2025-8194). Here every number is checked, and every byte counted as it is read. Runs as a
process of its own with limits on its memory and time, so it imports little: see `archives`.
"""

import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from springtide.core.archive_format import explain_size
from springtide.errors import ArchiveError

BLOCK = 512
EMPTY = bytes(BLOCK)
REGULAR = (b"0", b"\0")
EXTENDED = b"x"  # a pax header for the next member
LONG_NAME = b"L"  # GNU's way to say the same of a name
KINDS = {b"1": "a link", b"2": "a link", b"3": "a device", b"4": "a device", b"5": "a folder", b"6": "a pipe"}
KINDS |= {b"S": "a sparse file", b"g": "a global header", b"K": "a long link"}
MOST_EXTENDED_BYTES = 64 * 1024
MOST_NAME_BYTES = 4096
MOST_PARTS = 64
CHUNK_BYTES = 1 << 20
EXECUTABLE = 0o100
REFUSED, UNWRITTEN = 3, 4  # exit codes of the process that reads, with the sentence on stdout
MOST_MEMORY_BYTES = 512 << 20
MOST_CPU_S = 60


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an archive may hold at most."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Member:
    """A regular file in an archive: its relative path, its size, and whether it may be executed."""

    name: str
    size: int
    executable: bool


class ArchiveContents:
    """What an archive holds so far: no name twice, none both a file and a folder, and not too many."""

    def __init__(self, limits: ArchiveLimits) -> None:
        self.limits = limits
        self.sizes: dict[str, int] = {}
        self.folders: set[str] = set()

    def add(self, member: Member) -> None:
        """Take in a member."""
        name = member.name
        if name in self.sizes:
            raise ArchiveError(f"the archive holds {name!r} twice")
        parts = name.split("/")
        above = {"/".join(parts[:count]) for count in range(1, len(parts))}
        both = name if name in self.folders else next(iter(sorted(above & self.sizes.keys())), None)
        if both is not None:
            raise ArchiveError(f"the archive holds {both!r} both as a file and as a folder")
        self.sizes[name] = member.size
        self.folders |= above
        if len(self.sizes) > self.limits.files or len(self.folders) > self.limits.files:
            self.refuse()

    def refuse(self) -> None:
        """Say that it is too much."""
        raise ArchiveError(explain_size("the archive", self.sizes, self.limits.bytes))


def survey(file: BinaryIO, limits: ArchiveLimits) -> None:
    """Read all headers before a file is written, and go back to the beginning; refuse what is too much."""
    contents = ArchiveContents(limits)
    while (member := read_member(file)) is not None:
        contents.add(member)
        file.seek(pad(member.size), os.SEEK_CUR)
    if sum(contents.sizes.values()) > limits.bytes:
        contents.refuse()
    file.seek(0)


def read_member(file: BinaryIO) -> Member | None:
    """The next regular file with what pax headers say of it; None at the end."""
    told: dict[str, str] = {}
    while True:
        header = read_block(file)
        if header == EMPTY:
            return None
        check_sum(header)
        kind, size = header[156:157], parse_number(header[124:136], "size")
        if kind == EXTENDED:
            told |= parse_records(read_extension(file, size))
        elif kind == LONG_NAME:
            told["path"] = read_text(read_extension(file, size).rstrip(b"\0"))
        elif kind in REGULAR:
            return make_member(header, size, told)
        else:
            name = told.get("path", read_name(header))
            raise ArchiveError(f"archive member {name!r} is {KINDS.get(kind, 'of no known kind')}; {ONLY_FILES}")


ONLY_FILES = "only regular files are taken"


def make_member(header: bytes, size: int, told: dict[str, str]) -> Member:
    """The member that a header describes."""
    if any(key.startswith("GNU.sparse") for key in told):
        raise ArchiveError(f"archive member {told.get('path', read_name(header))!r} is a sparse file; {ONLY_FILES}")
    if "size" in told and told["size"] != str(size):
        raise ArchiveError(f"archive member {read_name(header)!r} has two sizes, {size} and {told['size'][:20]!r}")
    name = clean_name(told.get("path", read_name(header)))
    return Member(name, size, bool(parse_number(header[100:108], "mode") & EXECUTABLE))


def read_block(file: BinaryIO) -> bytes:
    """The next header; an archive that ends without the blocks that mark its end was cut."""
    block = file.read(BLOCK)
    if len(block) != BLOCK:
        raise ArchiveError("the archive is no plain tar file (it ends early)")
    return block


def check_sum(header: bytes) -> None:
    """Refuse a block whose sum is not the one it states: it is no header."""
    stated = parse_number(header[148:156], "checksum")
    if stated != sum(header[:148]) + 8 * 0x20 + sum(header[156:]):
        raise ArchiveError("the archive is no plain tar file (a header has the wrong checksum)")


def parse_number(field: bytes, what: str) -> int:
    """A number of a header, in octal digits, so never negative; sizes of 8 GB and more would be written otherwise."""
    text = field.strip(b" \0")
    if not text.isdigit() or not set(text) <= set(b"01234567"):
        raise ArchiveError(f"the archive is no plain tar file (a {what} is {field!r}, not octal digits)")
    return int(text, 8)


def read_name(header: bytes) -> str:
    """The name in a header; ustar splits a long one in two."""
    name, prefix = header[:100].split(b"\0", 1)[0], header[345:500].split(b"\0", 1)[0]
    return read_text(prefix + b"/" + name if prefix and header[257:262] == b"ustar" else name)


def read_text(data: bytes) -> str:
    """A name as text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ArchiveError(f"archive member {data[:100]!r} has a name that is not UTF-8; rename it") from None


def read_extension(file: BinaryIO, size: int) -> bytes:
    """The content of a header of headers, with what fills its last block."""
    if size > MOST_EXTENDED_BYTES:
        raise ArchiveError(f"the archive is no plain tar file (an extended header of {size} bytes)")
    data = file.read(pad(size))
    if len(data) != pad(size):
        raise ArchiveError("the archive is no plain tar file (it ends early)")
    return data[:size]


def parse_records(data: bytes) -> dict[str, str]:
    """The records of a pax header: `length key=value`, the length that of the whole record, line feed included."""
    told: dict[str, str] = {}
    while data:
        digits, _, _ = data.partition(b" ")
        length = int(digits) if digits.isdigit() and len(digits) < 7 else 0
        record, data = data[:length], data[length:]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if not equals or record[-1:] != b"\n" or len(record) != length:
            raise ArchiveError("the archive is no plain tar file (a malformed extended header)")
        told[read_text(key)] = read_text(value)
    return told


def clean_name(name: str) -> str:
    """A relative path in its plain form; refuse what could reach outside the folder it is unpacked into."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or not parts or "\0" in name or name.endswith("/"):
        raise ArchiveError(f"archive member {name[:200]!r} does not stay inside the folder; use relative paths")
    if len(name.encode()) > MOST_NAME_BYTES or len(parts) > MOST_PARTS or any(len(one.encode()) > 255 for one in parts):
        raise ArchiveError(f"archive member {name[:200]!r} has a name that is too long")
    return "/".join(parts)


def pad(size: int) -> int:
    """The bytes that a content takes, whole blocks."""
    return -(-size // BLOCK) * BLOCK


def unpack_file(file: BinaryIO, folder: Path, limits: ArchiveLimits) -> None:
    """Write the files of an archive below a folder that is there and empty."""
    survey(file, limits)
    while (member := read_member(file)) is not None:
        target = folder / member.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "xb") as out:
            for chunk in read_content(file, member.size):
                out.write(chunk)
        # read-only for others, so that no run changes the snapshot by accident
        target.chmod(0o755 if member.executable else 0o644)


def read_content(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The content of a member in chunks, and what fills its last block passed over."""
    left = pad(size)
    while left:
        chunk = file.read(min(left, CHUNK_BYTES))
        if not chunk:
            raise ArchiveError("the archive is no plain tar file (it ends early)")
        yield chunk[:size]
        size, left = max(0, size - len(chunk)), left - len(chunk)


def main(arguments: list[str]) -> int:
    """Unpack stdin: FOLDER FILES BYTES. Prints why an archive is refused, or why it could not be written."""
    folder, files, most_bytes = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    limit_process(most_bytes)
    try:
        with os.fdopen(0, "rb") as file:
            unpack_file(file, folder, ArchiveLimits(files, most_bytes))
    except (ArchiveError, OSError) as error:
        sys.stdout.buffer.write(str(error).encode("utf-8", "backslashreplace"))
        return REFUSED if isinstance(error, ArchiveError) else UNWRITTEN
    return 0


def limit_process(most_bytes: int) -> None:
    """Let this process take no more memory, time and disk than reading an archive needs."""
    for kind, most in (
        (resource.RLIMIT_AS, MOST_MEMORY_BYTES),
        (resource.RLIMIT_CPU, MOST_CPU_S),
        (resource.RLIMIT_FSIZE, most_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
