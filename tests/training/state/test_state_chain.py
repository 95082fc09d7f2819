"""The chain of a run: when it is linked, and what a resume leaves of it."""

from pathlib import Path

import torch

from springtide.core.receipt_format import check_chain
from springtide.training.state.state_chain import ChainPlan, StateChain, digest_state, find_fingerprint, read_chain

HEAD = {"facts": {"seed": 0}, "environment": {"torch": "2"}}


def name(value: float) -> list[tuple[str, torch.Tensor]]:
    return [("parameter weight", torch.tensor([value]))]


def test_links_follow_each_other_and_a_step_has_one(tmp_path: Path) -> None:
    chain = StateChain(tmp_path / "out" / "chain.jsonl", ChainPlan())
    chain.begin(HEAD)
    for step in (1, 2, 2):
        chain.add(step, name(step))
    lines = read_chain(chain.file)
    check_chain(lines)
    assert [line.get("step") for line in lines] == [None, 1, 2]
    assert lines[1]["state"] == digest_state(name(1)) != lines[2]["state"]


def test_after_a_resume_the_steps_that_are_taken_again_are_cut_off(tmp_path: Path) -> None:
    chain = StateChain(tmp_path / "chain.jsonl", ChainPlan())
    chain.begin(HEAD)
    for step in (1, 2, 3):
        chain.add(step, name(step))
    again = StateChain(chain.file, ChainPlan())
    again.resume(2, HEAD, digest_state(name(2)))
    again.add(3, name(3))
    lines = read_chain(chain.file)
    check_chain(lines)
    assert [(line.get("step"), line.get("resumed", False)) for line in lines] == [
        (None, False), (1, False), (2, False), (2, True), (3, False)
    ]  # fmt: skip


def test_a_resume_without_a_chain_begins_one(tmp_path: Path) -> None:
    chain = StateChain(tmp_path / "chain.jsonl", ChainPlan())
    chain.resume(4, HEAD, digest_state(name(4)))
    assert [line.get("step") for line in read_chain(chain.file)] == [None, 4]


def test_a_line_that_a_kill_cut_short_does_not_count(tmp_path: Path) -> None:
    chain = StateChain(tmp_path / "chain.jsonl", ChainPlan())
    chain.begin(HEAD)
    chain.add(1, name(1))
    chain.file.write_text(chain.file.read_text() + '{"step": 2, "sta')
    chain.resume(1, HEAD, digest_state(name(1)))
    check_chain(read_chain(chain.file))


def test_links_take_half_a_per_cent_of_the_time_at_most_and_grow_apart() -> None:
    plan = ChainPlan()
    assert not plan.is_due(1, now_s=0.9, began_s=0.0, linked_s=0.0, cost_s=0.0)
    assert plan.is_due(1, now_s=1.0, began_s=0.0, linked_s=0.0, cost_s=0.0)
    assert not plan.is_due(1, now_s=19.0, began_s=0.0, linked_s=0.0, cost_s=0.1), "0.1 s may be spent every 20 s"
    assert plan.is_due(1, now_s=20.0, began_s=0.0, linked_s=0.0, cost_s=0.1)
    assert not plan.is_due(1, now_s=6400.0, began_s=0.0, linked_s=6301.0, cost_s=0.0), "64th of 6400 s is 100 s"


def test_steps_that_are_asked_for_are_the_only_ones() -> None:
    plan = ChainPlan(frozenset({3}))
    assert plan.is_due(3, 0.0, 0.0, 0.0, 9.0) and not plan.is_due(4, 99.0, 0.0, 0.0, 0.0)


def test_data_that_has_a_name_for_its_content_is_named() -> None:
    class Named(list[int]):
        fingerprint = "v3"

    class Around:
        dataset = Named()

    assert (find_fingerprint(Named()), find_fingerprint(Around()), find_fingerprint([1])) == ("v3", "v3", None)
