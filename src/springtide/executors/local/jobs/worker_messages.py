"""What workers say to the agent on their control socket, read once and checked: types, ranges, sizes. Pure.

The messages are those that `training.group.control_channel` sends. A worker runs the user's code and may say anything:
numbers must be such as can be kept, text is made plain, and anything else is refused, which costs the worker's own job.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from springtide.executors.message_fields import (
    NAME_CHARACTERS,
    Address,
    MetricName,
    MetricValue,
    PlainText,
    Seconds,
    Slowdown,
    StepCount,
    Text,
    WorkerCount,
)

#: One message of a worker; the longest real one holds the metrics of a step.
MESSAGE_BYTES = 1 << 20
MOST_METRICS = 1000
MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class StoreMessage:
    """The job's store serves at an address."""

    event: Literal["store"]
    address: Address


@dataclass(frozen=True, slots=True)
class PlanMessage:
    """The script has said how much there is to do, and begins at a step."""

    event: Literal["planned"]
    logical_workers: WorkerCount
    steps_per_epoch: StepCount
    step: StepCount
    total_steps: StepCount | None


@dataclass(frozen=True, slots=True)
class StepMessage:
    """A global step is done."""

    event: Literal["progressed"]
    step: StepCount
    epoch: StepCount


@dataclass(frozen=True, slots=True)
class EpochMessage:
    """An epoch is over, of which so many seconds passed outside steps."""

    event: Literal["epoch"]
    outside_s: Seconds


@dataclass(frozen=True, slots=True)
class LoopMessage:
    """The process has left the loop over steps for code of the user's (`outside`), or is back (`inside`)."""

    event: Literal["inside", "outside"]


@dataclass(frozen=True, slots=True)
class BusyMessage:
    """The process waits for something that it knows of; an empty text: no more."""

    event: Literal["busy"]
    doing: PlainText


@dataclass(frozen=True, slots=True)
class ResizedMessage:
    """The change of devices is made."""

    event: Literal["resized"]
    step: StepCount
    pause_s: Seconds


@dataclass(frozen=True, slots=True)
class FailingMessage:
    """A checkpoint could not be written; of the last one, the result, another is tried."""

    event: Literal["checkpoint_failing"]
    step: StepCount
    reason: PlainText
    is_result: bool = False


@dataclass(frozen=True, slots=True)
class WarningMessage:
    """What the user should know."""

    event: Literal["warned"]
    text: PlainText


@dataclass(frozen=True, slots=True)
class LagMessage:
    """The others wait for this process, which takes so many times as long; an empty name: for none any more."""

    event: Literal["lagging"]
    laggard: Annotated[Text, Field(max_length=NAME_CHARACTERS)]
    factor: Slowdown


@dataclass(frozen=True, slots=True)
class ResumeMessage:
    """The run goes on from the checkpoint of a step; newer ones were damaged."""

    event: Literal["resumed"]
    step: StepCount
    passed_over: Annotated[tuple[PlainText, ...], Field(max_length=MOST_PROBLEMS)] = ()


@dataclass(frozen=True, slots=True)
class MetricsMessage:
    """What `run.log` was given."""

    event: Literal["logged"]
    step: StepCount
    metrics: Annotated[dict[MetricName, MetricValue], Field(max_length=MOST_METRICS)]


@dataclass(frozen=True, slots=True)
class FinishMessage:
    """The last step is taken, and its checkpoint written."""

    event: Literal["finished"]
    step: StepCount
    reason: PlainText | None = None


@dataclass(frozen=True, slots=True)
class NoteMessage:
    """Where a process stands in what it was told to do."""

    event: Literal["done", "left", "ready", "held", "terminated", "checkpointed"]
    step: StepCount | None = field(default=None)


WorkerMessage: TypeAlias = (
    StoreMessage
    | PlanMessage
    | StepMessage
    | EpochMessage
    | LoopMessage
    | BusyMessage
    | ResizedMessage
    | FailingMessage
    | WarningMessage
    | LagMessage
    | ResumeMessage
    | MetricsMessage
    | FinishMessage
    | NoteMessage
)
_MESSAGE: TypeAdapter[WorkerMessage] = TypeAdapter(Annotated[WorkerMessage, Field(discriminator="event")])


def read_message(data: Any) -> WorkerMessage:
    """The message in JSON data; a ValueError if it is none of ours."""
    return _MESSAGE.validate_python(data)
