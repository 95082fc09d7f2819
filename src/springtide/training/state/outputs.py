"""The output folder of a run that ends, copied to object storage: each file, and when all are there a list of them."""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from springtide.errors import TrainingError
from springtide.objects.object_store import ObjectStore

LIST = "manifest.json"
CHUNK_BYTES = 4 << 20
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


def send_outputs(folder: Path, store: ObjectStore, sleep: Callable[[float], None] = time.sleep) -> None:
    """Copy the files below a folder; what the store refuses is tried again for a while, and then is an error.

    Links are not followed. The list has the size and hash of each file; it comes last, so with it the copy is whole.
    """
    for pause_s in (*PAUSES_S, None):
        try:
            send_once(folder, store)
        except OSError as error:
            if pause_s is None:
                raise TrainingError(f"the output could not be copied: {error}; it is in {folder}") from error
            print(f"springtide: warning: {error}; the output is copied again in {pause_s:g} s", file=sys.stderr)
            sleep(pause_s)
        else:
            return


def send_once(folder: Path, store: ObjectStore) -> None:
    """Copy the files, then their list."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if is_plain(path)}
    listed = {name: send_file(path, store, name) for name, path in files.items()}
    store.write(LIST, [json.dumps({"schema": 1, "files": listed}, indent=1).encode()])


def is_plain(path: Path) -> bool:
    """Whether a path is a file of its own."""
    return path.is_file() and not path.is_symlink()


def send_file(path: Path, store: ObjectStore, name: str) -> dict[str, object]:
    """Copy a file; returns its size and hash."""
    sign = hashlib.sha256()

    def read() -> Iterator[bytes]:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                sign.update(chunk)
                yield chunk

    return {"bytes": store.write(f"files/{name}", read()), "sha256": sign.hexdigest()}
