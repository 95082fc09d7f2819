"""Replies of a server as the API writes them, for tests that need no server."""

from typing import Any

from springtide.client.replies import JobInfo
from springtide.control.api.documents import write_job
from springtide.control.storage.records import JobRecord, State


def make_job(**changes: Any) -> JobInfo:
    """A job as a server tells it, with some fields changed."""
    record = JobRecord("one-1", "one", "ann", State.RUNNING, {"run": "python train.py"}, 0.0)
    return JobInfo.read(write_job(record, 0.0) | changes)
