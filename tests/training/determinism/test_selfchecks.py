"""The self-check of devices, on a CPU: what it finds there it would find on a GPU."""

from collections.abc import Iterator

import pytest
import torch

from springtide.training.determinism import selfchecks
from springtide.training.determinism.selfchecks import Finding, check_all


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_cpu_passes() -> None:
    findings = list(check_all("cpu"))
    assert [finding.check for finding in findings] == ["cuda", "collectives", "repeats", "random"]
    assert all(finding.ok for finding in findings), findings


def test_a_device_that_does_not_repeat_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter(([1.0], [1.5]))
    monkeypatch.setattr(selfchecks, "train", lambda device: next(losses))
    finding = next(finding for finding in check_all("cpu") if finding.check == "repeats")
    assert finding == Finding("repeats", False, "20 steps trained twice on cpu: loss 1, then 1.5")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_torch_without_cuda_is_named() -> None:
    (finding,) = check_all("cuda")
    assert not finding.ok
    assert "sees no CUDA device" in finding.seen


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_every_gpu_passes() -> None:
    assert all(finding.ok for finding in check_all("cuda"))
