"""State trees taken apart and put together."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from springtide.errors import JobError
from springtide.training.state import state_tree

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(
    PLAIN,
    lambda part: st.lists(part) | st.dictionaries(st.text() | st.integers(), part) | st.tuples(part, part),
    max_leaves=20,
)


@given(TREES)
def test_plain_trees_come_back(tree: Any) -> None:
    assert state_tree.put_together(*state_tree.take_apart(tree)) == tree


def test_tensors_come_back_by_path() -> None:
    tree = {"a": [torch.arange(3), {0: (torch.ones(()), -0.0)}]}
    text, tensors = state_tree.take_apart(tree)
    assert sorted(tensors) == ["/a/0", "/a/1/0/0"]
    assert torch.equal(state_tree.put_together(text, tensors)["a"][0], torch.arange(3))


def test_tensors_whose_paths_read_alike_stay_apart() -> None:
    tree = {"a/b": torch.zeros(2), "a": {"b": torch.ones(3)}, 1: torch.ones(1), "1": torch.zeros(1)}
    back = state_tree.put_together(*state_tree.take_apart(tree))
    assert back["a/b"].tolist() == [0, 0] and back["a"]["b"].tolist() == [1, 1, 1]
    assert (back[1].item(), back["1"].item()) == (1, 0)


def test_what_does_not_survive_is_named() -> None:
    with pytest.raises(JobError, match="state at /user/model is a object"):
        state_tree.take_apart({"user": {"model": object()}})
    with pytest.raises(JobError, match=r"key 1\.5"):
        state_tree.take_apart({1.5: 0})


def test_tensors_of_an_accelerator_go_to_one_in_the_containers_that_are_there() -> None:
    far, near = torch.zeros(1, device="meta"), torch.zeros(1)
    placed = state_tree.find_placed({"a": [near, (far, 3)], 1: {"b": far}, "c": near, "d": 1.5})
    assert placed == [("a", 1, 0), (1, "b")]
    tree: dict[Any, Any] = {"a": [near, (near, 3)], 1: {"b": near}, "c": near, "d": 1.5}
    held = tree["a"], tree[1]
    assert state_tree.move_placed(tree, placed, torch.device("meta")) is tree
    assert tree["a"] is held[0] and tree[1] is held[1]
    assert [one.device.type for one in (*tree["a"][:1], tree["a"][1][0], tree[1]["b"], tree["c"])] == [
        *("cpu", "meta", "meta", "cpu")
    ]
    assert state_tree.move_placed(tree, (), torch.device("meta")) is tree
