"""Every error a user can meet, as one tree.

SpringtideError
├── InputError            something the user gave is wrong: exit code 2
│   ├── TraceError        a trace file or one of its rows
│   ├── ProfileError      a throughput profile, or a model that has none
│   ├── ClusterError      a cluster description
│   ├── PolicyError       an unknown policy or a policy given what it cannot do
│   ├── JobError          a job file or a training set-up that cannot work
│   ├── CatalogError      a catalog of cloud machines or its prices
│   ├── CheckpointError   a checkpoint that cannot be used
│   ├── NondeterminismError   an operator or a model that cannot keep the promised bits
│   ├── ArchiveError      a working directory or an archive of one that cannot be taken
│   ├── MissingError      there is no such job, file or user, or it is another user's (HTTP 404)
│   ├── ConflictError     the state of the job or user does not allow it (409)
│   └── LimitError        a limit is reached; try again later (429)
├── ServerError           no server, or it does not let us in: exit code 4
│   ├── ForbiddenError    only an admin may do this (403)
│   └── RemovedUserError  the user was removed while the request was under way (401)
├── UnavailableError      the server cannot do it now; try again (503): exit code 1
├── StateError            the state directory or its database cannot be used: exit code 1
│   └── UnknownOwnerError nobody knows as which system user a job runs
├── ExecutorError         an agent that does not answer or cannot do what it was asked: exit code 1
└── TrainingError         a run that went wrong: exit code 1
    └── RescaleError      a change of processes that could not be completed
        └── PeerLostError     a process of the same run is gone: exit code 75

A message names the thing, its value, the rule, and the remedy. A room may have a kind of its own below one of these,
where only its own code tells it apart.
"""

from typing import Any, TypeVar

Kind = TypeVar("Kind", bound="SpringtideError")


class SpringtideError(Exception):
    """Root of every error that is meant for the user; its text is shown without a traceback."""

    exit_code = 1

    @property
    def reason(self) -> str:
        """What kind of error it is, in the word that programs are given: `job` of a JobError."""
        return name_reason(type(self))

    @property
    def facts(self) -> dict[str, Any]:
        """What programs are told besides the reason and the sentence."""
        return {}


class InputError(SpringtideError):
    """Something the user gave is wrong."""

    exit_code = 2


class TraceError(InputError):
    """A trace file, or a row of one, that cannot be read."""


class ProfileError(InputError):
    """A throughput profile that cannot be read, or a model without one."""


class ClusterError(InputError):
    """A cluster description that cannot be."""


class PolicyError(InputError):
    """An unknown policy, or one given what it cannot do."""


class JobError(InputError):
    """A job file or a training set-up that cannot work."""


class CatalogError(InputError):
    """A catalog of cloud machines, or its prices, that cannot be used."""


class CheckpointError(InputError):
    """A checkpoint that cannot be used."""


class NondeterminismError(InputError):
    """An operator or a model that cannot keep the promised bits."""


class ArchiveError(InputError):
    """A working directory, or an archive of one, that cannot be taken."""


class MissingError(InputError):
    """There is no such thing, or it is not this user's."""


class ConflictError(InputError):
    """The job or user is in a state in which this cannot be done."""


class LimitError(InputError):
    """A user has reached a limit; try again later."""


class ServerError(SpringtideError):
    """No server answers, or it does not let us in."""

    exit_code = 4


class ForbiddenError(ServerError):
    """Something that only an admin may do."""


class RemovedUserError(ServerError):
    """The user was removed after their token was checked, while the request was under way."""


class UnavailableError(SpringtideError):
    """The server cannot do now what was asked.

    `unknown`: it may already have been done, to this job or array if one is named; nobody can say.
    """

    def __init__(self, sentence: str, unknown: bool = False, job_id: str = "", array_id: str = "") -> None:
        super().__init__(sentence)
        self.unknown, self.job_id, self.array_id = unknown, job_id, array_id

    @property
    def facts(self) -> dict[str, Any]:
        """The job or array, if one is known, and whether nobody can say what was done."""
        return {"job": self.job_id or None, "array": self.array_id or None, "unknown": self.unknown}


class StateError(SpringtideError):
    """The state directory or its database cannot be used."""


class UnknownOwnerError(StateError):
    """Nobody knows as whom the jobs of an owner run, and they are not to run as the server."""


class ExecutorError(SpringtideError):
    """An agent that does not answer, or cannot do what it was asked."""


class TrainingError(SpringtideError):
    """A training run that went wrong."""


class RescaleError(TrainingError):
    """A change of processes that could not be completed."""


class PeerLostError(RescaleError):
    """Another process of this run, or its store, is gone; the code says that this process is not to blame."""

    exit_code = 75


def name_reason(kind: type[SpringtideError]) -> str:
    """The word that programs are given for a kind of error."""
    return kind.__name__.removesuffix("Error").lower()


def find_kind(reason: str, family: type[Kind]) -> type[Kind]:
    """The kind of error in a family that has this reason; the family itself where none has it."""
    kinds = (one for one in globals().values() if isinstance(one, type) and issubclass(one, family))
    return next((kind for kind in kinds if name_reason(kind) == reason), family)
