"""What clients ask of an agent, read once and checked. Pure."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from springtide.executors.message_fields import Number, PlainText, Seconds


@dataclass(frozen=True, slots=True)
class HelloRequest:
    """Who are you, and what devices are there?"""

    do: Literal["hello"]


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """Take these instructions, all of them or none; each is read by `wire`."""

    do: Literal["apply"]
    instructions: list[Any]


@dataclass(frozen=True, slots=True)
class EventsRequest:
    """The events after a number; if there are none, as soon as there is one or the time is up."""

    do: Literal["events"]
    after: Number
    wait_s: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class AcknowledgeRequest:
    """Forget the events up to a number."""

    do: Literal["acknowledge"]
    upto: Number


@dataclass(frozen=True, slots=True)
class RunningRequest:
    """Which jobs hold devices?"""

    do: Literal["running"]


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """End, after all jobs have been stopped with checkpoints."""

    do: Literal["leave"]
    reason: PlainText = "shutdown"


AgentRequest: TypeAlias = (
    HelloRequest | ApplyRequest | EventsRequest | AcknowledgeRequest | RunningRequest | LeaveRequest
)
_REQUEST: TypeAdapter[AgentRequest] = TypeAdapter(Annotated[AgentRequest, Field(discriminator="do")])


def read_request(data: Any) -> AgentRequest:
    """The request in JSON data; a ValueError if it is none of ours."""
    return _REQUEST.validate_python(data)
