"""The device a process trains on, and CUDA's random state: the one module that touches `torch.cuda`.

Backend choice is a pure function of plain data, so its logic is tested without a GPU. Nothing here wakes CUDA in a
process that has not used it: the fork server and data workers stay clean.
"""

import os

import torch


def choose_device(gpus: int, local_rank: int) -> str:
    """Where a process trains that sees so many GPUs: on its own by its number on the machine, or on the CPU."""
    return f"cuda:{local_rank % gpus}" if gpus else "cpu"


def find_own() -> torch.device:
    """Where this process trains: an executor lets it see the one GPU that it holds, torchrun tells it its number."""
    return torch.device(choose_device(torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0"))))


def tell_idle(held: torch.device, used: torch.device) -> str:
    """What to say of a process that holds a GPU and trains elsewhere; nothing where it does not."""
    if held.type != "cuda" or used.type != "cpu":
        return ""
    return (
        f"the model is on the CPU, though this process holds {held}: move it with model.to(run.device) before "
        "run.prepare, and every batch with x.to(run.device)"
    )


def choose_backend(device_type: str) -> str:
    """The collective backend for a device type: NCCL for CUDA, gloo for the rest."""
    return "nccl" if device_type == "cuda" else "gloo"


def make_current(device: torch.device) -> None:
    """Let CUDA's random state and what names no GPU be those of the device a process trains on, if it is a GPU."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def name_kind(device: torch.device) -> str:
    """What a device is: the product name of a GPU, for a CPU only that it is one."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def is_awake() -> bool:
    """Whether this process has initialised CUDA."""
    return bool(torch.cuda.is_initialized())


def capture_rng() -> torch.Tensor | None:
    """CUDA's random state of the current device, or None where CUDA is asleep."""
    return torch.cuda.get_rng_state() if is_awake() else None


def restore_rng(state: torch.Tensor | None) -> None:
    """Put CUDA's random state back, where there is one."""
    if state is not None:
        torch.cuda.set_rng_state(state)


def seed_rng(seed: int) -> None:
    """Seed CUDA; before its first use torch remembers the seed without waking it."""
    torch.cuda.manual_seed_all(seed)
