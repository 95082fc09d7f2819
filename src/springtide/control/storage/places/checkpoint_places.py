"""Where the checkpoints of a job lie: in its own folder, in one that its file names, or in object storage."""

from pathlib import Path

from springtide.control.storage.state_dir import StateDir
from springtide.core.job_file import JobFile
from springtide.core.locations import find_path, is_url


def find_url(spec: JobFile, state_dir: StateDir, job_id: str) -> str | None:
    """The URL of a job's checkpoints in object storage; None if they lie in a folder."""
    given = spec.checkpoint.dir
    if given is None:
        return state_dir.job_url(job_id, "checkpoints")
    return given if find_path(given) is None else None


def find_folder(spec: JobFile, state_dir: StateDir, job_id: str) -> Path:
    """The folder of a job's checkpoints, or of the receipts for those in object storage."""
    given = None if spec.checkpoint.dir is None else find_path(spec.checkpoint.dir)
    return state_dir.checkpoints(job_id) if given is None else Path(given)


def is_shared(spec: JobFile, state_dir: StateDir) -> bool:
    """Whether several hosts may write there, so that names must say who did."""
    has_url = spec.checkpoint.dir is not None and is_url(spec.checkpoint.dir)
    return state_dir.several_hosts or state_dir.storage is not None or has_url
