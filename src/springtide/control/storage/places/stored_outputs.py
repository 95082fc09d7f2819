"""The output of jobs in object storage, where their hosts have copied it (`objects.folder_copies`).

The list there was written by a job's process: only what it names is opened, and nothing outside what is this job's.
"""

from typing import BinaryIO

from springtide.control.storage.state_dir import StateDir
from springtide.errors import StateError
from springtide.objects.folder_copies import FILES, CopiedFile, read_list
from springtide.objects.object_store import ObjectStore

PART = "output"


def list_copied(state_dir: StateDir, job_id: str) -> dict[str, CopiedFile]:
    """The files of a job's output by name; none before its last step, or where there is no object storage."""
    url = state_dir.job_url(job_id, PART)
    return {} if url is None else read_copied(ObjectStore(url))


def open_copied(state_dir: StateDir, job_id: str, name: str) -> tuple[BinaryIO, str]:
    """A file of a job's output to read, and its hash; OSError where the list has none of this name."""
    url = state_dir.job_url(job_id, PART)
    if url is None:
        raise FileNotFoundError(name)
    store = ObjectStore(url)
    copied = read_copied(store).get(name)
    if copied is None:
        raise FileNotFoundError(name)
    return store.open(f"{FILES}/{name}"), copied.sha256


def read_copied(store: ObjectStore) -> dict[str, CopiedFile]:
    """The list; a store that fails is no empty one."""
    try:
        return read_list(store)
    except OSError as error:
        raise StateError(f"what the job has left cannot be listed: {error}; try again") from error
