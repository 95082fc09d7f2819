"""Fingerprints of a run, and where two runs first part."""

from pathlib import Path

import pytest
import torch

from springtide.errors import TrainingError
from springtide.training.records import (
    Difference,
    Moment,
    Recorder,
    check_reference,
    find_difference,
    fingerprint,
    name_tensors,
    read_records,
)


def test_fingerprints_see_bits_not_values() -> None:
    zero = torch.zeros(3)
    assert fingerprint(zero) != fingerprint(-zero)
    assert fingerprint(zero) != fingerprint(zero.double())
    assert fingerprint(zero) != fingerprint(zero.reshape(3, 1))
    assert fingerprint(torch.tensor(float("nan"))) == fingerprint(torch.tensor(float("nan")))
    assert fingerprint(torch.ones(2, dtype=torch.bfloat16)) == fingerprint(torch.ones(4, dtype=torch.bfloat16)[::2])


def test_every_tensor_that_must_agree_is_named() -> None:
    model = torch.nn.BatchNorm1d(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = model(torch.randn(4, 2)).square().sum()
    loss.backward()
    optimizer.step()
    moment = Moment(model, [optimizer], {1: [loss]}, {1: dict(model.named_buffers())})
    assert [name for name, _ in name_tensors(moment)] == [
        "loss 0 of logical worker 1",
        "buffer running_mean of logical worker 1",
        "buffer running_var of logical worker 1",
        "buffer num_batches_tracked of logical worker 1",
        "parameter weight",
        "parameter bias",
        "optimizer momentum_buffer of weight",
        "optimizer momentum_buffer of bias",
    ]


def test_a_line_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    Recorder(tmp_path).record(0, [("parameter a", torch.ones(1))])
    (tmp_path / "1.jsonl").write_text('{"step": 1, "tens')
    assert list(read_records(tmp_path)) == [0]


def test_the_first_differing_step_and_tensor_are_found() -> None:
    weight, loss = "parameter weight", "loss 0 of logical worker 1"
    first, second = {weight: {"1"}, loss: {"2"}}, {weight: {"3"}, loss: {"4"}}
    reference = {0: first, 1: second}
    assert find_difference(reference, {1: second, 0: first}) is None
    assert find_difference(reference, {0: first, 1: {**second, weight: {"5"}}}) == Difference(1, weight)
    assert find_difference(reference, {0: first}) == Difference(1, loss)
    assert find_difference(reference, {0: {**first, weight: {"1", "9"}}, 1: second}) == Difference(0, weight)
    assert find_difference(reference, {0: first, 1: {**second, "buffer mean": {"1"}}}) == Difference(1, "buffer mean")


def test_a_difference_is_named_by_its_cause() -> None:
    reference = {0: {"parameter a": {"1"}, "loss 0 of logical worker 1": {"2"}}}
    run = {0: {"parameter a": {"3"}, "loss 0 of logical worker 1": {"4"}}}
    assert find_difference(reference, run) == Difference(0, "loss 0 of logical worker 1")


def test_a_reference_that_disagrees_with_itself_is_refused() -> None:
    with pytest.raises(TrainingError, match="step 3, parameter a has 2 values"):
        check_reference({3: {"parameter a": {"1", "2"}}})
