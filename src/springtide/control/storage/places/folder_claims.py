"""Who uses the folder of checkpoints that a job file names: two jobs there would go on from, and clear, each other's.

Folders are compared as they are written, in one spelling: nothing is looked at, so links and mounts are not seen.
"""

from springtide.control.storage.records import JobRecord
from springtide.control.storage.staging import Staging
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState
from springtide.core.locations import spell
from springtide.errors import JobError


def check_folder(job: JobFile, owner: str, staging: Staging, job_id: str = "") -> None:
    """Refuse a folder that another active job uses; that of another user is not named."""
    wanted = job.checkpoint.dir
    if wanted is None:
        return
    place = spell(wanted)
    for other in staging.list_active():
        used = other.spec.checkpoint.dir
        if used is not None and other.id != job_id and spell(used) == place and claims(other, owner):
            name = f"job {other.name}" if other.owner == owner else "a job of another user"
            raise JobError(f"checkpoint.dir {wanted} is in use by {name}; wait for its end or choose another")


def claims(other: JobRecord, owner: str) -> bool:
    """Whether a job keeps an owner's jobs out of its folder.

    One of another user that never started, and is held or waits for others, does not: it may never be able to write
    there, and could keep them out for ever. It is looked at again when it is let go.
    """
    is_parked = other.first_start_s is None and (other.state is JobState.PAUSED or bool(other.waits_for))
    return other.owner == owner or not is_parked
