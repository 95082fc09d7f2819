"""Traces read back, and where two runs first part."""

from pathlib import Path

import pytest
import torch

from springtide.errors import TrainingError
from springtide.training.state.digests import DigestTrace, name_tensors
from springtide.verification.digest_compare import Difference, check_reference, find_difference, read_records


def train_one_step(folder: Path, process: str, worker: int, roster: str) -> None:
    """Leave the trace of one step of a model with buffers."""
    torch.manual_seed(worker)
    model = torch.nn.BatchNorm1d(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trace = DigestTrace(folder, process)
    trace.worker = worker
    model(torch.randn(4, 2)).square().sum().backward()
    optimizer.step()
    trace.write(1, name_tensors(model, [optimizer]), roster)
    trace.file.close()


@pytest.fixture(autouse=True)
def keep_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "backward", torch.Tensor.backward)


def test_every_tensor_that_must_agree_is_read(tmp_path: Path) -> None:
    train_one_step(tmp_path, "p0", 3, "p0:1")
    names = list(read_records(tmp_path)[1])
    assert [name for name in names if not name.startswith(("alive", "optimizer optimizer"))] == [
        "loss 0 of logical worker 3",
        "parameter weight",
        "parameter bias",
        "buffer running_mean",
        "buffer running_var",
        "buffer num_batches_tracked",
        "optimizer 0 momentum_buffer weight",
        "optimizer 0 momentum_buffer bias",
    ]


def test_a_stock_rank_other_than_0_has_no_say_on_buffers(tmp_path: Path) -> None:
    train_one_step(tmp_path, "p0", 0, "reference")
    train_one_step(tmp_path, "p1", 1, "reference")
    step = read_records(tmp_path)[1]
    assert len(step["buffer running_mean"]) == 1
    assert len(step["parameter bias"]) == 2


def test_a_line_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    train_one_step(tmp_path, "p0", 0, "p0:1")
    (tmp_path / "p1.jsonl").write_text('{"step": 2, "tens')
    assert list(read_records(tmp_path)) == [1]


def test_the_first_differing_step_and_tensor_are_found() -> None:
    weight, loss = "parameter weight", "loss 0 of logical worker 1"
    first, second = {weight: {"1"}, loss: {"2"}}, {weight: {"3"}, loss: {"4"}}
    reference = {1: first, 2: second}
    assert find_difference(reference, {2: second, 1: first}) is None
    assert find_difference(reference, {1: first, 2: {**second, weight: {"5"}}}) == Difference(2, weight)
    assert find_difference(reference, {1: first}) == Difference(2, loss)
    assert find_difference(reference, {1: {**first, weight: {"1", "9"}}, 2: second}) == Difference(1, weight)
    assert find_difference(reference, {1: first, 2: {**second, "buffer mean": {"1"}}}) == Difference(2, "buffer mean")


def test_a_difference_is_named_by_its_cause() -> None:
    reference = {1: {"parameter a": {"1"}, "loss 0 of logical worker 1": {"2"}}}
    run = {1: {"parameter a": {"3"}, "loss 0 of logical worker 1": {"4"}}}
    assert find_difference(reference, run) == Difference(1, "loss 0 of logical worker 1")


def test_a_reference_that_disagrees_with_itself_is_refused() -> None:
    with pytest.raises(TrainingError, match="step 3, parameter a has 2 values"):
        check_reference({3: {"parameter a": {"1", "2"}}})
