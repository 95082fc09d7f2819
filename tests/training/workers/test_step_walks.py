"""A step that is taken for a batch says how a loop is written."""

from collections.abc import Callable
from typing import Any

import pytest

from springtide.errors import JobError
from springtide.training.workers.contexts import LogicalWorker
from springtide.training.workers.steps import Step


class Batches:
    """A source of batches for two workers, which notes what is asked of it."""

    accumulate = 2

    def __init__(self) -> None:
        self.workers = [0, 1]
        self.calls: list[str] = []

    def find_worker(self) -> LogicalWorker:
        return LogicalWorker(0)

    def begin_walk(self, step: Step) -> None:
        self.calls.append("walk")

    def begin_turn(self, worker: int) -> None:
        self.calls.append(f"turn {worker}")

    def take_batch(self, step: Step, worker: int, micro: int) -> Any:
        return f"{worker}.{micro}"

    def end_turn(self, worker: int) -> None:
        self.calls.append(f"end {worker}")

    def end_walk(self) -> None:
        self.calls.append("reduced")

    def abandon_walk(self) -> int:
        self.calls.append("left")
        return 1


def test_a_walk_gives_every_worker_its_turn() -> None:
    source = Batches()
    step = Step(source, 3, 8)
    assert [batch for batch in step] == ["0.0", "0.1", "1.0", "1.1"]
    assert source.calls == ["walk", "turn 0", "end 0", "turn 1", "end 1", "reduced"]
    assert (step.walks, step.index, step.number) == (1, 3, 8)
    step.check_whole()
    assert sum(1 for _ in step) == 4 and step.walks == 2


def test_batches_are_numbered_as_a_rank_of_ddp_numbers_them() -> None:
    source = Batches()
    step = Step(source, 3, 8)
    assert list(step.enumerate(1)) == [(7, "0.0"), (8, "0.1"), (7, "1.0"), (8, "1.1")]
    assert step.walks == 1 and source.calls[-1] == "reduced"


def test_a_numbered_walk_that_was_left_is_refused() -> None:
    source = Batches()
    step = Step(source, 0, 0)
    for _number, batch in step.enumerate():
        if batch == "1.0":
            break
    with pytest.raises(JobError, match="left in the turn of logical worker 1"):
        step.check_whole()
    assert source.calls[-1] == "left"


def test_a_walk_that_was_left_is_refused() -> None:
    source = Batches()
    step = Step(source, 0, 0)
    for batch in step:
        if batch == "1.0":
            break
    assert source.calls[-1] == "left" and step.walks == 0
    with pytest.raises(JobError, match="left in the turn of logical worker 1; every logical worker must"):
        step.check_whole()


def unpack(step: Any) -> None:
    _x, _y = step


def unpack_rest(step: Any) -> None:
    _x, *_rest = step


@pytest.mark.parametrize(
    ("use", "how"),
    [
        (unpack, "unpacked"),
        (unpack_rest, "unpacked"),
        (lambda step: step[0], "indexed"),
        (len, r"measured with len\(\)"),
        (lambda step: dict(**step), "taken for a dictionary"),
    ],
)
def test_a_step_is_no_batch(use: Callable[[Any], Any], how: str) -> None:
    with pytest.raises(JobError, match=f"a step of the loader was {how}, as if it were a batch") as error:
        use(Step(Batches(), 0, 0))
    assert "for x, y in step:" in str(error.value)


def test_what_a_batch_would_have_is_asked_for_in_vain() -> None:
    with pytest.raises(AttributeError, match=r"a step of the loader was asked for \.to, as if"):
        Step(Batches(), 0, 0).to("cuda")
