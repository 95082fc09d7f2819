"""The values of jobs' secrets on disk: new ones lie apart until their job is stored, and all go when it ends.

A submission that is not stored leaves nothing: what was put apart for it is dropped when its commit fails, or, if the
server ended meanwhile, at the next start. What is done after a commit may not fail: an error would undo in memory what
the store has.
"""

import json
import logging
import os
from collections.abc import Collection, Iterable, Mapping

from springtide.control.storage.private_paths import list_inside, remove
from springtide.control.storage.state_dir import StateDir, write_private, write_secrets

logger = logging.getLogger("springtide.control")


def put_apart(state_dir: StateDir, values: Mapping[str, Mapping[str, str]]) -> None:
    """Write the secrets of jobs that are about to be stored, all or none."""
    try:
        for job_id, secrets in values.items():
            write_private(state_dir.new_secrets / job_id, json.dumps(dict(secrets)))
    except OSError:
        drop_apart(state_dir, values)
        raise


def drop_apart(state_dir: StateDir, job_ids: Iterable[str]) -> None:
    """Remove what was put apart for jobs that were not stored."""
    for job_id in job_ids:
        remove(state_dir.root, state_dir.new_secrets / job_id)


def settle(state_dir: StateDir, job_ids: Iterable[str]) -> None:
    """Put the secrets of jobs that are stored now in their places; never raises, the next start tries again."""
    for job_id in job_ids:
        try:
            values = json.loads((state_dir.new_secrets / job_id).read_text(encoding="utf-8"))
            write_secrets(state_dir, job_id, values)
        except (OSError, ValueError) as error:
            logger.error("the secrets of job %s cannot be put in their place: %s", job_id, error)
        else:
            drop_apart(state_dir, (job_id,))


def settle_all(state_dir: StateDir, stored: Collection[str]) -> None:
    """Settle what was put apart when the last server ended, and drop what is of no stored job."""
    apart = list_inside(state_dir.root, state_dir.new_secrets)
    settle(state_dir, [name for name in apart if name in stored])
    drop_apart(state_dir, [name for name in apart if name not in stored])


def forget(state_dir: StateDir, job_id: str) -> None:
    """Remove the secrets of a job, whatever lies in their place; never raises."""
    path = state_dir.secrets_file(job_id)
    remove(state_dir.root, path)
    if os.path.lexists(path):
        logger.error("the secrets of job %s cannot be removed; remove %s by hand", job_id, path)
