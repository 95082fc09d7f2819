"""A job on its way to a server: the job file, the folder of its code, its archive and the values of its secrets."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide.client.packing import list_withheld, pack
from springtide.core.archive_format import LIMIT_BYTES, Archive
from springtide.core.job_file import JobFile, check_job, parse_job_text
from springtide.core.job_file_parts.job_settings import JobSettings
from springtide.errors import JobError


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A job with the absolute folder of its code, and the file it came from."""

    job: JobFile
    workdir: Path
    file: Path | None = None

    def pack(self, limit_bytes: int = LIMIT_BYTES) -> Archive:
        """The archive of the code."""
        return pack(self.workdir, limit_bytes, self.file)

    def list_withheld(self) -> list[str]:
        """What of the folder is not packed because it may hold secrets."""
        return list_withheld(self.workdir) if self.workdir.is_dir() else []


UNCHANGED = JobSettings()
MOST_BYTES = 1 << 20

#: What can be submitted: a job file or its path, the same as a dict, or a folder.
JobSource = JobFolder | JobFile | Path | str | dict[str, Any]


def load_job(job: JobSource, settings: JobSettings = UNCHANGED, **changes: Any) -> JobFolder:
    """A job and its code; a relative `workdir` counts from the job file, or from here.

    `settings`, then `changes` that are not None, win over the file.
    """
    if isinstance(job, JobFolder):
        return job
    if isinstance(job, Path | str):
        path = Path(job).resolve()
        file, base = read_job_file(Path(job)), path.parent
    else:
        path, file, base = None, check_job(job, "job") if isinstance(job, dict) else job, Path.cwd()
    told = {key: value for key, value in changes.items() if value is not None}
    if told or settings != UNCHANGED:
        document = settings.apply(file.model_dump(exclude_defaults=True)) | told
        file = check_job(document, str(job) if path is not None else "job")
    return JobFolder(file, (base / file.workdir).resolve(), path)


def read_job_file(path: Path) -> JobFile:
    """The job that a file describes."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise JobError(f"{path} is larger than {MOST_BYTES} bytes; a job file is a short text")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise JobError(f"job file {path} cannot be read ({reason}); write one, or start with: springtide new") from None
    return parse_job_text(text, str(path))


def read_secrets(file: JobFile) -> dict[str, str]:
    """The values of a job's secrets, from this process's environment."""
    missing = [name for name in file.secrets if name not in os.environ]
    if missing:
        raise JobError(f"secret {missing[0]} is not set in your environment; export it, then submit again")
    return {name: os.environ[name] for name in file.secrets}
