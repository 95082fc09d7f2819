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
│   └── ArchiveError      a working directory or an archive of one that cannot be taken
├── ServerError           no server, or it does not let us in: exit code 4
├── StateError            the state directory or its database cannot be used: exit code 1
├── ExecutorError         an agent that does not answer or cannot do what it was asked: exit code 1
└── TrainingError         a run that went wrong: exit code 1
    └── RescaleError      a change of processes that could not be completed
        └── PeerLostError     a process of the same run is gone: exit code 75

A message names the thing, its value, the rule, and the remedy.
"""


class SpringtideError(Exception):
    """Root of every error that is meant for the user; its text is shown without a traceback."""

    exit_code = 1

    @property
    def reason(self) -> str:
        """What kind of error it is, in the word that programs are given: `job` of a JobError."""
        return type(self).__name__.removesuffix("Error").lower()


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


class ServerError(SpringtideError):
    """No server answers, or it does not let us in."""

    exit_code = 4


class StateError(SpringtideError):
    """The state directory or its database cannot be used."""


class ExecutorError(SpringtideError):
    """An agent that does not answer, or cannot do what it was asked."""


class TrainingError(SpringtideError):
    """A training run that went wrong."""


class RescaleError(TrainingError):
    """A change of processes that could not be completed."""


class PeerLostError(RescaleError):
    """Another process of this run, or its store, is gone; the code says that this process is not to blame."""

    exit_code = 75
