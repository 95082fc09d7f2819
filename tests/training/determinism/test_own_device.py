"""Which device a process trains on, and what it is told if it holds a GPU and does not use it."""

import torch

from springtide.training.determinism.cuda import choose_device, tell_idle


def test_a_process_takes_its_own_gpu_or_the_cpu() -> None:
    assert [choose_device(gpus, rank) for gpus, rank in ((0, 3), (1, 0), (1, 5), (4, 2))] == [
        *("cpu", "cuda:0", "cuda:0", "cuda:2")
    ]


def test_a_model_on_the_cpu_beside_a_gpu_is_said_with_the_remedy() -> None:
    gpu, cpu = torch.device("cuda:0"), torch.device("cpu")
    assert "model.to(run.device)" in tell_idle(gpu, cpu)
    assert tell_idle(gpu, gpu) == tell_idle(cpu, cpu) == ""
