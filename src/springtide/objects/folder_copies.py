"""A folder copied to object storage: each file, and when all are there a list of them, with sizes and hashes.

`python -m springtide.objects.folder_copies FOLDER URL GENERATION` does it in a process of its own: for one that ends,
and may start no thread any more. What is there already, by the list, is not sent again. A start of a job that was cut
off and replaced leaves alone what a later one has copied.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from springtide.errors import InputError
from springtide.objects.object_store import SMALL_BYTES, ObjectStore

LIST = "manifest.json"
FILES = "files"
CHUNK_BYTES = 4 << 20
#: More than these a list cannot mean: sizes that JSON can hold, and times that have a date.
MOST_BYTES, LAST_S = 2**53, 2.5e11
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file that is there, as the list says."""

    bytes: int
    sha256: str
    modified_s: float


def find_files(folder: Path) -> dict[str, Path]:
    """The plain files below a folder, by name; links are not followed."""
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if is_plain(path)}


def is_plain(path: Path) -> bool:
    """Whether a path is a file of its own."""
    return path.is_file() and not path.is_symlink()


def note_files(folder: Path) -> dict[str, tuple[int, int]]:
    """What changes when a file below a folder does: sizes and times, by name."""
    noted = {name: path.stat() for name, path in find_files(folder).items()}
    return {name: (facts.st_size, facts.st_mtime_ns) for name, facts in noted.items()}


def copy_folder(
    folder: Path, store: ObjectStore, generation: int = 0, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Copy the files below a folder; what the store refuses is tried again for a while, and then is an OSError.

    `generation` is that of the start that copies, where an earlier one could still be at work; else 0.
    """
    for pause_s in (*PAUSES_S, None):
        try:
            copy_once(folder, store, generation)
        except OSError as error:
            if pause_s is None:
                raise
            print(f"springtide: warning: {error}; {folder} is copied again in {pause_s:g} s", file=sys.stderr)
            sleep(pause_s)
        else:
            return


def copy_once(folder: Path, store: ObjectStore, generation: int) -> None:
    """Copy the files that are not there as they are here, then their list: with it the copy is whole."""
    there = read_told(store)
    if is_later(there, folder, store, generation):
        return
    known = read_files(there)
    listed = {name: copy_file(path, store, name, known.get(name)) for name, path in find_files(folder).items()}
    text = write_list(folder, listed, generation)
    if not is_later(read_told(store), folder, store, generation):  # the files may have taken long
        store.write(LIST, [text])


def is_later(told: object, folder: Path, store: ObjectStore, generation: int) -> bool:
    """Whether a list is that of a later start, whose copy stays; it is said."""
    later = read_generation(told)
    if generation >= later:
        return False
    found = f"start {later} of this job has copied its output to {store.url}"
    print(f"springtide: warning: {found}; that stays, and {folder} of start {generation} is not copied over it")
    return True


def write_list(folder: Path, listed: Mapping[str, CopiedFile], generation: int) -> bytes:
    """The list of a copy, which must be read at once; InputError for a folder of more files than that allows."""
    told = {name: asdict(one) for name, one in listed.items()}
    text = json.dumps({"schema": 1, "generation": generation, "files": told}).encode()
    if len(text) > SMALL_BYTES:
        raise InputError(
            f"{folder} has {len(told)} files, whose list would take {len(text)} bytes; at most {SMALL_BYTES} can be "
            "read: write fewer files, or pack them into one"
        )
    return text


def copy_file(path: Path, store: ObjectStore, name: str, there: CopiedFile | None) -> CopiedFile:
    """Copy a file, unless it is there."""
    modified_s = path.stat().st_mtime
    if there is not None and there.bytes == path.stat().st_size and there.sha256 == find_hash(path):
        return there
    sign = hashlib.sha256()

    def read() -> Iterator[bytes]:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                sign.update(chunk)
                yield chunk

    size = store.write(f"{FILES}/{name}", read())
    return CopiedFile(size, sign.hexdigest(), modified_s)


def find_hash(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_list(store: ObjectStore) -> dict[str, CopiedFile]:
    """The files of a copy that is whole, by name; none where there is no list, or one that nobody could have meant."""
    return read_files(read_told(store))


def read_told(store: ObjectStore) -> Any:
    """What the list of a copy says; None where there is none that can be read."""
    try:
        return json.loads(store.read(LIST))
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def read_files(told: Any) -> dict[str, CopiedFile]:
    """The files that a list names; none if nobody could have meant it."""
    try:
        return {name: read_entry(name, entry) for name, entry in told["files"].items()}
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return {}


def read_generation(told: Any) -> int:
    """Which start of its job has made the copy of a list; 0 if none has said."""
    try:
        return int(told["generation"])
    except (ValueError, LookupError, TypeError, OverflowError):
        return 0


def read_entry(name: str, entry: Mapping[str, Any]) -> CopiedFile:
    """A line of a list; ValueError where its name would lead elsewhere."""
    if any(part in ("", ".", "..") or "\0" in part for part in name.split("/")):
        raise ValueError(f"{name!r} is no file of a copy")
    size, modified_s = int(entry["bytes"]), float(entry["modified_s"])
    if not 0 <= size <= MOST_BYTES or not 0 <= modified_s <= LAST_S:
        raise ValueError(f"{name!r} has {size} bytes of {modified_s}")
    return CopiedFile(size, str(entry["sha256"])[:64], modified_s)


def main() -> None:
    """Copy a folder; exit code 1 with a sentence if that cannot be done."""
    folder, url, generation = sys.argv[1:]
    try:
        copy_folder(Path(folder), ObjectStore(url), int(generation))
    except (OSError, InputError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
