"""Which variables of a script's loops are carried from step to step, and which of them a resumed process has lost."""

import enum
import time
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
import torch

from springtide.training.state.script.loop_variables import (
    STARTING,
    Carried,
    are_same,
    find_lost,
    read_carried,
    write_plain,
)

STEPS = 3


class Walk:
    """A loader's part: looks at what is carried at every boundary between steps, as a checkpoint does."""

    def __init__(self) -> None:
        self.found: Carried = {}

    def __iter__(self) -> Iterator[int]:
        for number in range(STEPS):
            yield number
            self.found = read_carried()


def count_steps(loader: Walk) -> None:
    seen = 0
    for _ in loader:
        seen += 2


def time_through_another_name(loader: Walk) -> None:
    before = time.time()
    for _ in loader:
        now = time.time()
        assert now - before < 1e9
        before = now


def keep_the_best(loader: Walk) -> None:
    best = None
    for step in loader:
        loss = 5.0 - step
        if best is None or loss < best:
            best = loss


def take_the_least(loader: Walk) -> None:
    best = float("inf")
    for _ in range(2):
        for step in loader:
            loss = 5.0 - step
        best = min(best, loss)


def sum_in_turns(loader: Walk) -> None:
    total = 0.0
    for _ in range(2):
        total = 0.0
        for step in loader:
            for turn in range(2):
                total += step * turn
        assert total


def decide_once(loader: Walk) -> None:
    done, while_true = False, True
    while while_true:
        for step in loader:
            if not done and step == 1:
                done = True
        while_true = False


class Trainer:
    """A script's own class, with a counter."""

    def __init__(self) -> None:
        self.seen, self.loss, self.rate, self.began_s = 0, 0.0, 0.1, 0.0

    def train(self, loader: Walk) -> None:
        for step in loader:
            self.loss = self.rate * step
            self.seen += 1
            assert self.began_s >= 0
            self.began_s = time.time()
            assert self.loss >= 0


def count_in_an_object(loader: Walk) -> None:
    Trainer().train(loader)


def write_before_reading(loader: Walk) -> None:
    loss, rate, shown = 0.0, 0.0, 0.0
    for _ in range(2):
        for step in loader:
            rate = 0.1 * step
            for turn in range(2):
                loss = rate * turn
            shown = loss
            if step == 1:
                continue
        assert shown >= 0


def time_steps(loader: Walk) -> None:
    began_s = time.time()
    last_s = time.perf_counter()
    for _ in loader:
        assert time.time() >= began_s and time.perf_counter() >= last_s
        began_s = time.time()
        last_s = time.perf_counter()


def keep_a_list(loader: Walk) -> None:
    losses: list[float] = []
    for step in loader:
        losses = [*losses, step]


def keep_tensors(loader: Walk) -> None:
    old = None
    for step in loader:
        now = [torch.tensor([float(step)])]
        assert old is None or old[0] < now[0]
        old = now


def read_only(loader: Walk) -> None:
    clip = 1.0
    for step in loader:
        assert step < clip + STEPS


@pytest.mark.parametrize(
    ("script", "carried"),
    [
        (count_steps, {"seen of count_steps()": "6"}),
        (keep_the_best, {"best of keep_the_best()": "3.0"}),
        (keep_a_list, {"losses of keep_a_list()": "list of 3 #7eeceafa"}),
        (keep_tensors, {"old of keep_tensors()": "list of 1 #10d0112ca"}),
        (take_the_least, {"best of take_the_least()": "3.0"}),
        (sum_in_turns, {"total of sum_in_turns()": "3.0"}),
        (decide_once, {"done of decide_once()": "True"}),
        (count_in_an_object, {"self.seen of train()": "3"}),
    ],
)
def test_what_comes_from_an_earlier_step_is_carried(script: Callable[[Walk], None], carried: Carried) -> None:
    walk = Walk()
    script(walk)
    assert walk.found == carried


@pytest.mark.parametrize("script", [write_before_reading, time_steps, time_through_another_name, read_only])
def test_what_every_step_makes_anew_is_not(script: Callable[[Walk], None]) -> None:
    walk = Walk()
    script(walk)
    assert walk.found == {}


def test_a_caller_of_the_loop_carries_too() -> None:
    def train(walk: Walk) -> float:
        for step in walk:
            loss = float(step)
        return loss

    best, walk = 9.0, Walk()
    for _ in range(2):
        best = min(best, train(walk))
    assert walk.found["best of test_a_caller_of_the_loop_carries_too()"] == "2.0"


def test_names_of_a_module_are_told_as_they_are() -> None:
    space = {"loader": Walk(), "__name__": "__main__"}
    exec("seen = 0\nfor step in loader:\n    seen += 1\n", space)
    assert space["loader"].found == {"seen": "3"}  # type: ignore[attr-defined]


def test_a_global_that_a_function_changes_is_carried() -> None:
    script = (
        "best = 9\ndef train():\n    global best\n    for step in loader:\n        best = min(best, step)\ntrain()\n"
    )
    space = {"loader": Walk(), "__name__": "__main__"}
    exec(script, space)
    assert space["loader"].found == {"best of train()": "0"}  # type: ignore[attr-defined]


def test_a_long_loop_is_left_like_a_short_one() -> None:
    # Jumps over so many instructions need an instruction more.
    lines = "\n".join(f"        made = {number} + step" for number in range(300))
    script = f"best = 9\nfor epoch in 0, 1:\n    for step in loader:\n{lines}\n    best = min(best, made)\n"
    space = {"loader": Walk(), "__name__": "__main__"}
    exec(script, space)
    assert space["loader"].found == {"best": "9"}  # type: ignore[attr-defined]


RESUMED = """
for step in loader:
    seen += 1
    kept += 1
    if kept > 9:
        later = later + 1
"""


def test_other_values_are_lost_and_what_is_not_there_yet_is_not() -> None:
    lost: list[str] = []

    def walk() -> Iterator[int]:
        lost.extend(find_lost({"seen": "7", "kept": "0", "later": "3", "gone": "1"}))
        yield 0

    exec(RESUMED, {"loader": walk(), "seen": 0, "kept": 0, "__name__": "__main__"})
    assert lost == ["seen was 7 and is 0"]


def test_a_number_in_a_tensor_is_told_as_that_number() -> None:
    assert write_plain(torch.tensor(4.25)) == "4.25" and write_plain(torch.tensor(3)) == "3"
    assert are_same(write_plain(torch.tensor(0.0)), write_plain(0)) and not are_same("0.5", "0")
    assert are_same("'a'", "'a'") and not are_same("'a'", "None")


class Phase(enum.Enum):
    """An enumeration."""

    FIRST = 1


class Result:
    """An object that a loop makes anew."""


WRITTEN: list[tuple[object, str]] = [
    (np.float64(0.5), "0.5"),
    (np.float32(0.5), "0.5"),
    (np.bool_(True), "True"),
    (np.int64(3), "3"),
    (Phase.FIRST, "Phase.FIRST"),
    (Fraction(1, 3), "Fraction(1, 3)"),
    ("x" * 100, f"'{'x' * 79}... #a61b66c7"),
    (np.zeros(2), "array (2,) #ecbb4b55"),
]


@pytest.mark.parametrize(("value", "text"), WRITTEN)
def test_values_of_other_types_are_written(value: object, text: str) -> None:
    assert write_plain(value) == text


def test_a_time_of_day_of_numpy_is_not_written() -> None:
    assert write_plain(np.float64(time.time())) == ""


LOSING = """
for step in loader:
    value = np.mean([0.5, step])
    if value < best:
        best = value
    if flag == 0:
        flag = np.bool_(True)
    if made is None:
        made = Result()
"""


def test_values_of_other_types_are_named_where_they_are_lost() -> None:
    saved: dict[str, str] = {}
    lost: list[str] = []

    def walk(first: bool) -> Iterator[int]:
        if not first:
            lost.extend(find_lost(saved))
        yield 0
        saved.update(read_carried() if first else {})

    space = {"np": np, "Result": Result, "__name__": "__main__"}
    for first in (True, False):
        start = {"best": float("inf"), "flag": 0, "made": None, "loader": walk(first)}
        exec(compile(LOSING, "script.py", "exec"), {**space, **start})
    assert lost == ["best was 0.25 and is inf", "flag was True and is 0", "made was Result(...) and is None"]


def test_a_server_that_has_forked_this_process_is_no_script() -> None:
    walk = Walk()
    space = {"loader": walk, "__name__": "__main__"}
    exec(compile("seen = 0\nfor step in loader:\n    seen += 1\n", f"{STARTING}server.py", "exec"), space)
    assert walk.found == {}
