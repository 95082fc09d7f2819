"""The values of `protocol` as JSON and back, checked on the way in: types, ranges, and text that can be kept.

Every instruction and event carries its `kind`, by which it is told from the others. Unknown fields are ignored, so
that a newer peer may add some.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter, ValidationError

from springtide.core.limits import MOST_INTEGER
from springtide.core.plain_text import make_plain
from springtide.executors.message_fields import check_encodable
from springtide.executors.protocol import Event, Failed, Instruction, Running, Warned

_INSTRUCTION: TypeAdapter[Instruction] = TypeAdapter(Annotated[Instruction, Field(discriminator="kind")])
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
_RUNNING: TypeAdapter[Running] = TypeAdapter(Running)
#: The kinds of events that are known here; a newer executor may have others.
KINDS = frozenset(get_args(kind.__annotations__["kind"])[0] for kind in get_args(Event))
#: How deep instructions and events are nested at most.
DEPTH = 8


def dump_instruction(instruction: Instruction) -> dict[str, Any]:
    """An instruction as JSON data."""
    data: dict[str, Any] = _INSTRUCTION.dump_python(instruction, mode="json")
    return data


def load_instruction(data: Any) -> Instruction:
    """The instruction in JSON data; a ValueError if there is none."""
    check_plain(data)
    return _INSTRUCTION.validate_python(data)


def dump_event(event: Event) -> dict[str, Any]:
    """An event as JSON data."""
    data: dict[str, Any] = _EVENT.dump_python(event, mode="json")
    return data


def load_event(data: Any) -> Event:
    """The event in JSON data; a ValueError if there is none."""
    check_plain(data)
    return _EVENT.validate_python(data)


def load_events(data: Any) -> Iterator[Event]:
    """The events in a list of JSON data; one that cannot be read costs its own job only.

    Its job has then failed, with a sentence for its owner; of a kind that is not known here the owner is warned. One
    that names no job is left out.
    """
    if not isinstance(data, list):
        raise ValueError(f"events came as {type(data).__name__}, they must be a list")
    for one in data:
        try:
            yield load_event(one)
        except ValueError as error:
            replacement = replace_event(one, describe_problem(error))
            if replacement is not None:
                yield replacement


def replace_event(data: Any, problem: str) -> Failed | Warned | None:
    """What stands for an event that cannot be read, as far as its job, number and generation can be."""
    if not isinstance(data, dict) or not data.get("job"):
        return None
    kind, known = data.get("kind"), {name: data.get(name, 0) for name in ("seq", "at_s", "job", "generation")}
    reason = f"the executor reported something of this job that cannot be kept: {problem}"
    if not isinstance(kind, str) or kind not in KINDS:
        return load_event_or_none({**known, "kind": "warned", "reason": reason})  # type: ignore[return-value]
    failed = {"step": 0, "exit_code": None, "reason": reason, "user_fault": False, "code": "bad_event"}
    return load_event_or_none({**known, "kind": "failed", **failed})  # type: ignore[return-value]


def load_event_or_none(data: dict[str, Any]) -> Event | None:
    """The event in JSON data, if there is one."""
    try:
        return load_event(data)
    except ValueError:
        return None


def describe_problem(error: ValueError) -> str:
    """What is wrong with a message, in one line that can be kept and shown."""
    if not isinstance(error, ValidationError):
        return make_plain(str(error), 500)
    first = error.errors(include_url=False)[0]
    if first["type"] == "union_tag_invalid":
        return make_plain(f"{first['ctx']['tag']!r} is unknown; there are {first['ctx']['expected_tags']}", 500)
    where = ".".join(str(part) for part in first["loc"])
    return make_plain(f"{where or 'it'} is {str(first['input'])[:80]!r}: {first['msg']}", 500)


def check_plain(data: Any, depth: int = DEPTH) -> None:
    """Refuse JSON data with a number or a text in it that could not be stored."""
    match data:
        case bool() | None:
            return
        case int() if abs(data) > MOST_INTEGER:
            raise ValueError(f"the number {str(data)[:24]}... is beyond 64 bits")
        case float() if not math.isfinite(data):
            raise ValueError(f"the number {data} is not finite")
        case str():
            check_encodable(data)
        case dict() | list() if depth == 0:
            raise ValueError(f"it is nested more than {DEPTH} deep")
        case dict():
            check_plain(list(data), depth)
            check_plain(list(data.values()), depth)
        case list() | tuple():
            for one in data:
                check_plain(one, depth - 1)


def dump_running(running: Sequence[Running]) -> list[dict[str, Any]]:
    """What runs, as JSON data."""
    return [_RUNNING.dump_python(one, mode="json") for one in running]


def load_running(data: Sequence[Any]) -> tuple[Running, ...]:
    """What runs, from JSON data."""
    return tuple(_RUNNING.validate_python(one) for one in data)
