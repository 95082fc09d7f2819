"""The answer of an agent that is asked for events, and how old they are for a server on another machine.

Two machines' clocks are not compared: the agent says what its own show now, and an event's age is a difference of them.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from springtide.errors import ExecutorError
from springtide.executors import boot_clock, wire
from springtide.executors.protocol import Event


def answer_events(events: Sequence[Event]) -> dict[str, Any]:
    """The events, and what the clocks of this machine show."""
    data = [wire.dump_event(event) for event in events]
    return {"events": data, "now_s": time.time(), "steady_s": boot_clock.read_s(), "boot": boot_clock.find_boot()}


def read_events(answer: dict[str, Any]) -> tuple[Event, ...]:
    """The events in an answer; those of another boot than ours with their age."""
    if "error" in answer:
        raise ExecutorError(f"the agent refused to tell its events: {answer['error']}")
    try:
        events = wire.load_events(answer.get("events"))
        return tuple(event if event.boot == boot_clock.find_boot() else add_age(event, answer) for event in events)
    except (ValueError, TypeError) as error:
        raise ExecutorError(f"the agent's events cannot be read: {error}") from None


def add_age(event: Event, answer: dict[str, Any]) -> Event:
    """An event with its age by the counter of its own boot; after a reboot of that machine, by its wall clock."""
    if "now_s" not in answer:  # of an agent before this version
        return event
    if event.steady_s is not None and event.boot == answer["boot"]:
        return replace(event, age_s=max(0.0, float(answer["steady_s"]) - event.steady_s))
    return replace(event, age_s=max(0.0, float(answer["now_s"]) - event.at_s))
