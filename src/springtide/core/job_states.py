"""The states of a job's life and the conditions beside them, in the words of the API: the server's and the client's."""

from enum import StrEnum


class JobState(StrEnum):
    """Where a job is in its life."""

    PROBING = "probing"
    WAITLISTED = "waitlisted"
    OFFERED = "offered"
    DECLINED = "declined"
    ADMITTED = "admitted"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobCondition(StrEnum):
    """A condition that holds in addition to the state."""

    AT_RISK = "at_risk"
    RESCALING = "rescaling"
    RECOVERING = "recovering"
    CHECKPOINT_FAILING = "checkpoint_failing"
    STALLED = "stalled"
    INPUTS_CHANGED = "inputs_changed"
    LAGGING = "lagging"


ENDED = frozenset({JobState.DECLINED, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
ACTIVE = frozenset(JobState) - ENDED
