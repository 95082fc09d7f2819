"""Where a framework puts a process that sees several GPUs; there are none here, so devices are values."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.integrations.installed import need

from springtide.errors import JobError
from springtide.integrations.frameworks import choose_gpus, choose_root, choose_shown

need("transformers")
FIRST, OWN, CPU = torch.device("cuda:0"), torch.device("cuda:1"), torch.device("cpu")


@pytest.fixture(autouse=True)
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)


def test_a_process_is_shown_its_own_gpu_unless_the_script_has_chosen_no_gpu() -> None:
    assert choose_shown(FIRST, OWN) == choose_shown(torch.device("cuda"), OWN) == OWN
    assert choose_shown(CPU, OWN) == choose_shown(CPU, CPU) == CPU
    assert choose_shown(torch.device("mps"), CPU) == torch.device("mps")


def test_accelerate_trains_on_the_processs_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun's two processes were both on the first GPU, since they are shown no ranks."""
    from accelerate.state import AcceleratorState, PartialState

    from springtide.integrations.accelerate_data import show_rank

    seen = {"device": torch.device("cuda"), "num_processes": 1}
    for state in (PartialState, AcceleratorState):
        monkeypatch.setattr(state, "_shared_state", seen)
    show_rank(SimpleNamespace(logical_workers=4, rank=1, device=OWN))  # type: ignore[arg-type]
    assert seen["device"] == OWN


def make_arguments(device: torch.device, gpus: int) -> Any:
    """TrainingArguments as they are where a process sees so many GPUs."""
    from transformers import TrainingArguments

    args = TrainingArguments("out", use_cpu=True, report_to=[], per_device_train_batch_size=4)
    vars(args).update(_setup_devices=device, _n_gpu=gpus)
    return args


def test_a_trainer_on_a_machine_of_two_gpus_has_the_batches_of_a_rank() -> None:
    """They were twice as large, over nn.DataParallel."""
    from springtide.integrations.hf.trainer_checks import place_arguments

    args = make_arguments(FIRST, 2)
    assert args.train_batch_size == 8
    place_arguments(args, OWN)
    assert (args.train_batch_size, args.n_gpu, args.device) == (4, 1, OWN)
    args = make_arguments(CPU, 0)
    place_arguments(args, OWN)
    assert (args.n_gpu, args.device) == (0, CPU)


def test_arguments_that_keep_several_gpus_are_refused() -> None:
    from springtide.integrations.hf.trainer_checks import place_arguments

    with pytest.raises(JobError, match=r"TrainingArguments has 2 GPUs .* CUDA_VISIBLE_DEVICES=1"):
        place_arguments(SimpleNamespace(device=FIRST, n_gpu=2), OWN)


@pytest.mark.parametrize(
    ("asked", "own", "ids"),
    [(4, FIRST, [0]), ("2", OWN, [1]), ([0, 1], OWN, [1]), (-1, OWN, [1]), (None, OWN, None), (0, OWN, None)],
)
def test_the_devices_of_a_trainer_are_the_one_gpu_of_the_process(asked: Any, own: Any, ids: Any) -> None:
    assert choose_gpus(asked, own) == ids


def test_lightning_asks_for_no_gpu_that_the_process_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """`devices=4` was refused where an executor shows a process one: `But your machine only has: [0]`."""
    need("lightning")
    from lightning.fabric.accelerators import CUDAAccelerator as OfFabric
    from lightning.pytorch.accelerators import CUDAAccelerator

    from springtide.integrations import lightning

    for kind in (CUDAAccelerator, OfFabric):
        monkeypatch.setattr(kind, "parse_devices", kind.parse_devices)
        monkeypatch.setattr(sys.modules[kind.__module__], "num_cuda_devices", lambda: 1)
    lightning.show_own_gpu(SimpleNamespace(device=CPU))  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"GPUs|gpu"):
        CUDAAccelerator.parse_devices(4)
    lightning.show_own_gpu(SimpleNamespace(device=OWN))  # type: ignore[arg-type]
    assert CUDAAccelerator.parse_devices(4) == OfFabric.parse_devices(4) == [1]


def test_a_strategy_trains_on_the_processs_own_gpu_or_where_it_is_told() -> None:
    """A Trainer that was told accelerator="cpu" was put on the GPU of a machine that has one."""
    assert choose_root([FIRST], OWN) == choose_root([], OWN) == OWN
    assert choose_root([CPU] * 4, OWN) == choose_root([], CPU) == CPU
