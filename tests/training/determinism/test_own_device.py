"""Which device a process trains on, and what it is told if it holds a GPU and does not use it."""

from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import springtide
from springtide.training.determinism.cuda import choose_device, make_current, tell_idle
from springtide.training.run import forget_run
from springtide.training.workers.contexts import Contexts


def test_a_process_takes_its_own_gpu_or_the_cpu() -> None:
    assert [choose_device(gpus, rank) for gpus, rank in ((0, 3), (1, 0), (1, 5), (4, 2))] == [
        *("cpu", "cuda:0", "cuda:0", "cuda:2")
    ]


def test_a_model_on_the_cpu_beside_a_gpu_is_said_with_the_remedy() -> None:
    gpu, cpu = torch.device("cuda:0"), torch.device("cpu")
    assert "model.to(run.device)" in tell_idle(gpu, cpu)
    assert tell_idle(gpu, gpu) == tell_idle(cpu, cpu) == ""


def test_who_prepares_a_model_beside_its_gpu_is_warned_in_its_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("springtide.training.determinism.cuda.find_own", lambda: torch.device("cuda:0"))
    forget_run()
    run: Any = springtide.init(logical_workers=2, seed=0)
    assert run.device.type == "cuda"
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.prepare(model, optimizer, TensorDataset(torch.ones(8, 1)), batch_size=2)
    run.watched.remove()  # a hook of all optimizers of this process
    forget_run()
    assert "warning: the model is on the CPU, though this process holds cuda:0" in capsys.readouterr().err
    assert run.device.type == "cpu", "it trains where the model is"


def test_the_gpu_of_a_model_is_the_current_one_before_random_states_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr("springtide.training.elastic_run.find_device", lambda model: torch.device("cuda:1"))
    monkeypatch.setattr(torch.cuda, "set_device", done.append)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA Tensor 9")
    monkeypatch.setattr(Contexts, "seed", lambda *args: done.append("seeded"))
    forget_run()
    run: Any = springtide.init(logical_workers=2, seed=0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.prepare(model, optimizer, TensorDataset(torch.ones(8, 1)), batch_size=2)
    run.watched.remove()  # a hook of all optimizers of this process
    forget_run()
    assert done == [torch.device("cuda:1"), "seeded"], "as torchrun tells the second process of a machine"


def test_a_cpu_is_nobody_s_current_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: pytest.fail("it would wake CUDA"))
    make_current(torch.device("cpu"))
