"""Every instruction and event survives JSON, and what is not one is refused."""

import json
import re
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from springtide.executors import wire
from springtide.executors.protocol import Event, Instruction, Running


def is_sane(value: Any) -> bool:
    """Whether there is no number in it that JSON has no word for."""
    return not {"nan", "inf", "-inf"} & set(re.findall(r"-?(?:nan|inf)\b", repr(value)))


@pytest.mark.parametrize("kind", get_args(Instruction), ids=lambda kind: str(kind.__name__))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_instructions_survive_json(kind: type[Any], data: st.DataObject) -> None:
    value = data.draw(st.builds(kind).filter(is_sane))
    assert wire.load_instruction(json.loads(json.dumps(wire.dump_instruction(value)))) == value


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: str(kind.__name__))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_events_survive_json(kind: type[Any], data: st.DataObject) -> None:
    value = data.draw(st.builds(kind).filter(is_sane))
    assert wire.load_event(json.loads(json.dumps(wire.dump_event(value)))) == value


@settings(max_examples=25, deadline=None)
@given(st.lists(st.builds(Running), max_size=3))
def test_running_survives_json(running: list[Running]) -> None:
    assert wire.load_running(json.loads(json.dumps(wire.dump_running(running)))) == tuple(running)


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"kind": "explode", "job": "a", "generation": 1, "key": "k"},
        {"kind": "resize", "job": "a", "generation": "soon", "key": "k", "devices": []},
        {"kind": "resize", "job": "a", "generation": 1, "key": "k"},
    ],
)
def test_what_is_no_instruction_is_refused(data: Any) -> None:
    with pytest.raises(ValueError):
        wire.load_instruction(data)


def test_fields_of_a_newer_peer_are_ignored() -> None:
    data = {"kind": "stop", "job": "a", "generation": 1, "key": "k", "urgency": 3}
    assert wire.load_instruction(data).job == "a"
