"""What a device must do for jobs to keep their bits, tried in less than a minute.

`springtide doctor` runs it as a process of its own where there are GPUs, so that neither it nor a server wakes CUDA.
One JSON line per finding: what was checked, whether it is ok, what was seen. On a CPU it tries the same.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch

from springtide.training.determinism import cuda, levels

STEPS = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was tried."""

    check: str
    ok: bool
    seen: str


def check_all(device: str) -> Iterator[Finding]:
    """Everything that is tried on the devices of a type, in order; without any, only that is said."""
    if device == "cuda" and not torch.cuda.is_available():
        yield Finding("cuda", False, f"torch {torch.__version__} sees no CUDA device (built for {torch.version.cuda})")
        return
    levels.apply(levels.choose("D1", 1, device == "cuda"))
    yield Finding("cuda", True, f"torch {torch.__version__}, CUDA {torch.version.cuda}, {name_devices(device)}")
    yield check_backend(device)
    for number in range(count_devices(device)):
        where = f"{device}:{number}" if device == "cuda" else device
        first, again = train(where), train(where)
        seen = f"{STEPS} steps trained twice on {where}: loss {first[-1]:.6g}"
        yield Finding("repeats", first == again, seen if first == again else f"{seen}, then {again[-1]:.6g}")
    yield check_random(device)


def count_devices(device: str) -> int:
    """How many devices of a type there are."""
    return torch.cuda.device_count() if device == "cuda" else 1


def name_devices(device: str) -> str:
    """The devices by name."""
    if device != "cuda":
        return device
    return ", ".join(torch.cuda.get_device_name(number) for number in range(count_devices(device)))


def check_backend(device: str) -> Finding:
    """Whether the collective backend of a type is built in."""
    backend = cuda.choose_backend(device)
    there = torch.distributed.is_nccl_available() if backend == "nccl" else torch.distributed.is_gloo_available()
    return Finding("collectives", there, f"{backend} {'is' if there else 'is NOT'} built in")


def train(device: str) -> list[float]:
    """The losses of a small convolutional network, always from the same start."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Dropout(0.1), torch.nn.Linear(288, 10)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(32, 1, 8, 8).to(device), torch.randint(10, (32,)).to(device)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def check_random(device: str) -> Finding:
    """Whether the random state of a device can be taken and put back."""
    cuda.seed_rng(1)
    torch.manual_seed(1)
    torch.rand(1, device=device)
    state, own = cuda.capture_rng(), torch.get_rng_state()
    first = torch.rand(4, device=device)
    cuda.restore_rng(state)
    torch.set_rng_state(own)
    same = torch.equal(torch.rand(4, device=device), first)
    return Finding("random", same, f"the random state of {device} {'is' if same else 'is NOT'} put back")


if __name__ == "__main__":
    for finding in check_all(sys.argv[1] if sys.argv[1:] else "cuda"):
        print(json.dumps(asdict(finding)), flush=True)
