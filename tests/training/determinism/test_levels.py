"""Determinism levels as plain data, for devices this machine does not have."""

import pytest
import torch

from springtide.errors import JobError
from springtide.training.determinism import cuda, levels


def test_cuda_is_made_deterministic() -> None:
    switches = levels.choose("D1", threads=2, cuda=True)
    assert switches.environment["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert switches.deterministic_algorithms and not switches.tf32 and not switches.cudnn_benchmark


def test_cpus_keep_their_kernels_at_d1_and_are_pinned_at_d2() -> None:
    d1, d2 = levels.choose("D1", 2, cuda=False), levels.choose("D2", 2, cuda=False)
    assert (d1.threads, d1.onednn, dict(d1.environment)) == (2, True, {"TORCHINDUCTOR_DETERMINISTIC": "1"})
    assert (d2.threads, d2.onednn) == (1, False)
    assert d2.environment["ATEN_CPU_CAPABILITY"] == "avx2"


def test_compiled_graphs_do_not_depend_on_what_a_process_has_seen_before() -> None:
    assert [levels.choose(level, 1, cuda=False).static_graphs for level in levels.LEVELS] == [False, True, True]


def test_switches_that_a_script_sets_otherwise_are_found_and_put_back() -> None:
    switches = levels.choose("D1", 1, cuda=True)
    before = (torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
    try:
        levels.set_backends(switches)
        assert levels.find_changed(switches) == []
        torch.backends.cudnn.benchmark = True
        torch.use_deterministic_algorithms(False)
        assert levels.find_changed(switches) == ["torch.use_deterministic_algorithms", "torch.backends.cudnn.benchmark"]
        levels.set_backends(switches)
        assert levels.find_changed(switches) == []
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = before[:2]
        torch.backends.cuda.matmul.allow_tf32 = before[2]


def test_unknown_levels_are_refused() -> None:
    with pytest.raises(JobError, match="'D3' is unknown; choose one of D0, D1, D2"):
        levels.choose("D3", 1, False)


def test_backends_by_device_type() -> None:
    assert cuda.choose_backend("cuda") == "nccl"
    assert cuda.choose_backend("cpu") == "gloo"
    assert cuda.capture_rng() is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_random_state_is_taken_and_put_back() -> None:
    cuda.seed_rng(1)
    torch.rand(1, device="cuda")
    state = cuda.capture_rng()
    first = torch.rand(4, device="cuda")
    cuda.restore_rng(state)
    assert torch.equal(torch.rand(4, device="cuda"), first)
