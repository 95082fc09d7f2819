"""The values of jobs' secrets on disk, which go when the job ends.

They go after the end is stored. What is done then may not fail: an error would undo in memory what the store has.
"""

import logging
import os

from springtide.control.storage.private_paths import remove
from springtide.control.storage.state_dir import StateDir

logger = logging.getLogger("springtide.control")


def forget(state_dir: StateDir, job_id: str) -> None:
    """Remove the secrets of a job, whatever lies in their place; never raises."""
    path = state_dir.secrets_file(job_id)
    remove(state_dir.root, path)
    if os.path.lexists(path):
        logger.error("the secrets of job %s cannot be removed; remove %s by hand", job_id, path)
