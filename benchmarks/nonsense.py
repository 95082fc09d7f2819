"""Nonsense with a seed: values that no message should hold, put where messages hold others."""

import copy
import json
import random
from typing import Any

ODD: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308),
    *(float("nan"), float("inf"), float("-inf"), "", "0", "\udcff", "\x1b[2J", "\x00", "é" * 300, "x" * 5000),
    *([], {}, [[]], [None], {"a": 1}, {"": {"": {"": {}}}}, [1] * 200, {"kind": "finished"}),
)


def spoil(message: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """A message in which one to three things are others, are gone, or are too many."""
    spoiled = copy.deepcopy(message)
    for _ in range(dice.randint(1, 3)):
        place = find_place(spoiled, dice)
        key = dice.choice([*place, "more"])
        if dice.random() < 0.2:
            place.pop(key, None)
        else:
            place[key] = copy.deepcopy(dice.choice(ODD))
    return spoiled


def find_place(message: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """The message, or a mapping somewhere in it."""
    inner = [value for value in message.values() if isinstance(value, dict)]
    return find_place(dice.choice(inner), dice) if inner and dice.random() < 0.5 else message


def write_line(message: dict[str, Any], dice: random.Random) -> bytes:
    """A message as a line, sometimes with a byte flipped or cut short."""
    line = bytearray(json.dumps(message).encode())
    if line and dice.random() < 0.2:
        line[dice.randrange(len(line))] ^= 1 << dice.randrange(8)
    if dice.random() < 0.1:
        del line[dice.randrange(len(line)) :]
    return bytes(line).replace(b"\n", b" ") + b"\n"
