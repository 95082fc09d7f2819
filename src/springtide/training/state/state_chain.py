"""The chain of a run: digests of its state now and then, each hashed together with all before it, for its receipt.

One JSON object per line of a file. The first says what was run and on what; the others are links: a step and the digest
of all that `name_tensors` names after it. How lines are chained says `core.receipt_format`. Only rank 0 writes, and
keeps nothing in memory that another rank 0 would need; after a resume, lines of steps that are taken again are cut off.
"""

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from springtide import __version__
from springtide.core.receipt_format import hash_line
from springtide.training.state.digests import digest

#: A link may take this share of the time since the one before.
MOST_SHARE = 0.005
#: And is this far from it, at least; in a long run a share of its time, so that the chain stays short.
LEAST_GAP_S, GAP_SHARE = 1.0, 1 / 64

Named = Iterable[tuple[str, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """When links are due: at the steps asked for, or if none are, now and then."""

    steps: frozenset[int] = frozenset()

    def is_due(self, step: int, now_s: float, began_s: float, linked_s: float, cost_s: float) -> bool:
        """Whether a link is due after a step, for a run that began then and whose last link was made then."""
        if self.steps:
            return step in self.steps
        gap_s = max(LEAST_GAP_S, cost_s / MOST_SHARE, (now_s - began_s) * GAP_SHARE)
        return now_s - linked_s >= gap_s


class StateChain:
    """The file of one run's chain, and the clock of its links."""

    def __init__(self, file: Path, plan: ChainPlan) -> None:
        self.file = file
        self.plan = plan
        self.began_s = self.linked_s = time.monotonic()
        self.cost_s = 0.0
        self.linked_step = -1

    def begin(self, head: Mapping[str, Any]) -> None:
        """Start anew with what is run."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(make_line("", head))

    def resume(self, step: int, head: Mapping[str, Any], state: str) -> None:
        """Go on after a resume from a step, with a line that says so and what was found there."""
        kept = [line for line in read_chain(self.file) if line.get("step", 0) <= step]
        if not kept:
            self.begin(head)
            kept = read_chain(self.file)
        self.file.write_text("".join(json.dumps(line) + "\n" for line in kept))
        self.append({"resumed": True, "step": step, "state": state, "environment": head["environment"]})

    def note(self, step: int, tensors: Named, now_s: float) -> None:
        """Add a link if one is due."""
        if self.plan.is_due(step, now_s, self.began_s, self.linked_s, self.cost_s):
            self.add(step, tensors)

    def add(self, step: int, tensors: Named) -> None:
        """Add a link, unless this step has one."""
        if step == self.linked_step:
            return
        began_s = time.monotonic()
        self.append({"step": step, "state": digest_state(tensors)})
        self.linked_step, self.linked_s = step, time.monotonic()
        self.cost_s = self.linked_s - began_s

    def append(self, content: Mapping[str, Any]) -> None:
        """Add a line after the last."""
        lines = read_chain(self.file)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(make_line(lines[-1]["chain"] if lines else "", content))


def make_line(before: str, content: Mapping[str, Any]) -> str:
    """A line of a chain, after the one whose hash is given."""
    return json.dumps({**content, "chain": hash_line(before, content)}) + "\n"


def read_chain(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a chain; none where there is no file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines(keepends=True) if line[-1] == "\n"]


def digest_state(tensors: Named) -> str:
    """One digest of all tensors by their names."""
    named = sorted((name, digest(tensor)) for name, tensor in tensors)
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def describe_environment() -> dict[str, Any]:
    """What a run runs on, as far as it may decide its bits."""
    uses_gpu = torch.cuda.is_available()
    return {
        "springtide": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "machine": platform.machine(),
        "processor": find_processor(),
        "device": torch.cuda.get_device_name() if uses_gpu else "cpu",
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def find_processor() -> str:
    """The model of the processor, where the system says it."""
    if not os.path.exists("/proc/cpuinfo"):
        return platform.processor()
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def find_fingerprint(dataset: Any) -> str | None:
    """The data's own name for its content, where it has one: an attribute `fingerprint`, as a hash or a version."""
    for each in (dataset, getattr(dataset, "dataset", None)):  # ours may stand around the user's
        found = getattr(each, "fingerprint", None) or getattr(each, "_fingerprint", None)
        if isinstance(found, str):
            return found
    return None
