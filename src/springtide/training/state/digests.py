"""Digests of everything a step may change, written after each step for `springtide verify` to compare.

One JSON line per step: a digest per parameter, optimizer state tensor and rank-0 buffer, one per logical worker's loss,
and those of all else that is alive (`alive_objects`). Digests are over bytes: NaN equals itself, -0.0 differs from 0.0.
Off unless a folder is asked for.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from springtide.training.state.script.alive_objects import digest_alive


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether a tensor is cut over the processes: one of torch's DTensors, whose module is imported where one is."""
    return hasattr(tensor, "full_tensor")


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be copied as it is: no shard, no sparse one, no part of a graph."""
    return tensor.layout is torch.strided and not tensor.is_meta and not is_sharded(tensor) and tensor.grad_fn is None


def digest(tensor: torch.Tensor) -> str:
    """A short hash of a tensor's type, shape and bytes."""
    whole = tensor.detach().full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
    plain = whole.detach().cpu().contiguous()
    sign = hashlib.sha256(f"{plain.dtype}{tuple(plain.shape)}".encode())
    sign.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return sign.hexdigest()[:16]


def name_tensors(
    model: torch.nn.Module | Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter, buffer and optimizer state tensor under a name that is the same in every run."""
    names: dict[int, str] = {}
    models = [model] if isinstance(model, torch.nn.Module) else model
    for number, model in enumerate(models):
        title = "" if len(models) == 1 else f"{number}."
        for name, parameter in model.named_parameters():
            names[id(parameter)] = title + name
            yield f"parameter {title}{name}", parameter
        for name, buffer in model.named_buffers():
            yield f"buffer {title}{name}", buffer
    for number, optimizer in enumerate(optimizers):
        for trained, state in optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    yield f"optimizer {number} {key} {names.get(id(trained), '?')}", value


class DigestTrace:
    """The record of one process's steps."""

    def __init__(self, folder: Path, process: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = (folder / f"{process}.jsonl").open("a", encoding="utf-8")
        self.losses: dict[int, list[str]] = {}
        self.worker: int | None = None
        self.watch_losses()

    def watch_losses(self) -> None:
        """Note every tensor a backward starts from; only while tracing is `Tensor.backward` replaced."""
        original: Any = torch.Tensor.backward

        def backward(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
            if self.worker is not None:
                self.losses.setdefault(self.worker, []).append(digest(tensor))
            original(tensor, *args, **kwargs)

        torch.Tensor.backward = backward  # type: ignore[method-assign, assignment]

    def write(self, step: int, tensors: Iterable[tuple[str, torch.Tensor]], roster: str) -> None:
        """Write the line of a finished step, and have it on its way before anything can kill the process."""
        named = dict(tensors)
        alive = digest_alive({id(tensor) for tensor in named.values()}, digest)
        line = {
            "step": step,
            "roster": roster,
            "worker": self.worker,
            "tensors": {name: digest(tensor) for name, tensor in named.items()} | alive,
            "losses": {str(worker): losses for worker, losses in sorted(self.losses.items())},
        }
        self.losses = {}
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()
