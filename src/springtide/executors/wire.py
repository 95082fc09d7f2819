"""The values of `protocol` as JSON and back, checked on the way in.

Every instruction and event carries its `kind`, by which it is told from the others. Unknown fields are ignored, so
that a newer peer may add some.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from springtide.executors.protocol import Event, Instruction, Running

_INSTRUCTION: TypeAdapter[Instruction] = TypeAdapter(Annotated[Instruction, Field(discriminator="kind")])
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
_RUNNING: TypeAdapter[Running] = TypeAdapter(Running)


def dump_instruction(instruction: Instruction) -> dict[str, Any]:
    """An instruction as JSON data."""
    data: dict[str, Any] = _INSTRUCTION.dump_python(instruction, mode="json")
    return data


def load_instruction(data: Any) -> Instruction:
    """The instruction in JSON data; pydantic's ValidationError, a ValueError, if there is none."""
    return _INSTRUCTION.validate_python(data)


def dump_event(event: Event) -> dict[str, Any]:
    """An event as JSON data."""
    data: dict[str, Any] = _EVENT.dump_python(event, mode="json")
    return data


def load_event(data: Any) -> Event:
    """The event in JSON data; pydantic's ValidationError, a ValueError, if there is none."""
    return _EVENT.validate_python(data)


def dump_running(running: Sequence[Running]) -> list[dict[str, Any]]:
    """What runs, as JSON data."""
    return [_RUNNING.dump_python(one, mode="json") for one in running]


def load_running(data: Sequence[Any]) -> tuple[Running, ...]:
    """What runs, from JSON data."""
    return tuple(_RUNNING.validate_python(one) for one in data)
