"""The code of jobs in object storage: put there when it is uploaded, brought back where a server finds it missing."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from springtide.control.storage.archives import take_upload
from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir
from springtide.errors import ArchiveError, StateError
from springtide.objects.object_store import ObjectStore

CHUNK_BYTES = 4 << 20
logger = logging.getLogger("springtide.control")


def name_archive(code_hash: str) -> str:
    """The name of an archive there."""
    return f"code/{code_hash}.tar"


def keep_code(state_dir: StateDir, code_hash: str, archive: Path) -> None:
    """Copy an archive that was taken in, if there is object storage and it is not there."""
    if state_dir.storage is None:
        return
    store, name = ObjectStore(state_dir.storage), name_archive(code_hash)
    try:
        if name not in store.list(name):
            store.write(name, read_chunks(archive))
    except OSError as error:
        raise StateError(f"the code was not taken in: {error}; try again") from error


def read_chunks(path: Path) -> Iterator[bytes]:
    """The content of a file, piece by piece."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def restore_code(state_dir: StateDir, records: Iterable[JobRecord], limit_bytes: int) -> None:
    """Bring back the code of jobs that is not here, as on a host that takes over; checked by its hash as any upload.

    Storage that cannot be reached is an error; code that is not there, or not what it was, costs its own jobs only.
    """
    missing = sorted({record.archive for record in records if not (state_dir.code / record.archive).is_dir()})
    if state_dir.storage is None or not missing:
        return
    store = ObjectStore(state_dir.storage)
    for code_hash in missing:
        try:
            with store.open(name_archive(code_hash)) as source, take_upload(state_dir.code) as upload:
                while chunk := source.read(CHUNK_BYTES):
                    upload.write(chunk)
                upload.unpack(state_dir.code / code_hash, limit_bytes)
        except (FileNotFoundError, ArchiveError) as error:
            logger.error("the code %s of an active job is not here and cannot be had: %s", code_hash, error)
        except OSError as error:
            raise StateError(
                f"the code {code_hash[:12]} of an active job is not here and cannot be had: {error}"
            ) from error
