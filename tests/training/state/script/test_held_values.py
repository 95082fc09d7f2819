"""Values that are kept come back as what they were, or are told."""

import enum
import random
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from springtide.training.state import state_tree
from springtide.training.state.script.held_values import from_plain, is_tree, mark, refill, to_plain
from springtide.training.state.script.object_walk import HeldPlace
from springtide.training.state.script.script_objects import put_back

Score = namedtuple("Score", ["loss", "step"])


class Output(OrderedDict):  # type: ignore[type-arg]  # as transformers' ModelOutput is
    """A dictionary of a package's own kind."""


class Phase(enum.Enum):
    """An enumeration."""

    FIRST = 1
    SECOND = 2


KINDS: list[Any] = [
    Counter(a=3, b=1),
    OrderedDict(b=1, a=2),
    defaultdict(list, a=[1, 2]),
    defaultdict(None, a=1),
    deque([1, 2], 4),
    torch.Size([2, 3]),
    (1, [2, {"a": 3}]),
]


@pytest.mark.parametrize("value", KINDS, ids=lambda value: type(value).__name__)
def test_containers_come_back_in_their_kinds(value: Any) -> None:
    held = {"best": value}
    assert is_tree(held)
    back = refill({}, from_plain(to_plain(held)))
    assert back == held
    assert type(back["best"]) is type(value)
    if isinstance(value, defaultdict):
        assert back["best"].default_factory is value.default_factory


def test_what_cannot_be_made_again_is_left_out() -> None:
    assert not is_tree({"out": Output(a=1)})
    assert not is_tree([defaultdict(lambda: 0)])
    assert is_tree(Output(a=1)), "which is filled where it is"
    assert is_tree(defaultdict(lambda: 0))


def test_named_tuples_come_back_where_there_is_one() -> None:
    kept = from_plain(to_plain({"best": Score(0.5, 7)}))
    back = refill({"best": Score(9.0, 0)}, kept)
    assert back["best"] == Score(0.5, 7)
    assert isinstance(back["best"], Score)


@pytest.mark.parametrize("value", [Score(0.5, 7), Phase.SECOND])
@pytest.mark.parametrize("here", [{"best": None}, {}])
def test_what_has_no_class_here_is_told(here: dict[str, Any], value: Any) -> None:
    walk: Any = SimpleNamespace(found={"held": HeldPlace(here)}, aliases={}, holders={})
    assert not put_back(walk, "held", to_plain({"best": value}))


class Averaging:
    """A package's average, whose state is another since."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise KeyError("decay")


def test_a_package_that_does_not_take_its_state_is_told() -> None:
    walk: Any = SimpleNamespace(found={"average": HeldPlace(Averaging())}, aliases={}, holders={})
    assert not put_back(walk, "average", {"shadow": torch.ones(2)})


GENERATORS: list[Any] = [
    lambda: np.random.default_rng(3),
    lambda: np.random.Generator(np.random.MT19937(3)),
    lambda: np.random.RandomState(3),
    lambda: random.Random(3),
    lambda: torch.Generator().manual_seed(3),
]


def draw(generator: Any) -> float:
    return float(torch.rand((), generator=generator) if isinstance(generator, torch.Generator) else generator.random())


@pytest.mark.parametrize("make", GENERATORS)
def test_random_generators_go_on_where_they_were(make: Any) -> None:
    one, other = make(), make()
    draw(one)
    text, tensors = state_tree.take_apart(to_plain(one))
    before = mark(one)
    assert mark(other) != before
    kept = from_plain(state_tree.put_together(text, tensors))
    assert refill(other, kept) is other
    assert mark(other) == before
    assert draw(other) == draw(one)


@pytest.mark.parametrize("make", GENERATORS)
def test_equal_generators_have_one_mark_wherever_they_are(make: Any) -> None:
    assert len({mark(one) for one in [make() for _ in range(50)]}) == 1


def test_a_generator_of_another_kind_cannot_go_on() -> None:
    with pytest.raises(LookupError, match="a Random cannot go on"):
        refill(random.Random(1), to_plain(np.random.default_rng(1)))
