"""Traces of a run read back, and the first place where two runs part.

`training.state.digests` writes one file per process and start, a line per step; here the files of all processes of a
run are merged and compared. Nothing here runs or loads a tensor.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide.errors import TrainingError

# Kinds of tensors, each of which depends on those before it within a step.
CAUSES = ("loss", "buffer", "parameter", "optimizer", "alive")
#: Kinds that only rank 0 of a stock run is asked for: DDP overwrites the others' buffers before they are read, and what
#: a script keeps besides is its own on every rank.
OF_RANK_0 = ("buffer", "alive")

#: Per tensor, every digest that any process of the run wrote for it; one if they all agree.
Digests = dict[str, set[str]]
Records = dict[int, Digests]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two runs part."""

    step: int
    tensor: str


def read_records(folder: Path) -> Records:
    """Digests per step and tensor, merged over the processes of a run."""
    steps: Records = {}
    for file in sorted(folder.rglob("*.jsonl")):
        for row in read_rows(file):
            merged = steps.setdefault(row["step"], {})
            for name, digest in name_digests(row):
                merged.setdefault(name, set()).add(digest)
    return dict(sorted(steps.items()))


def read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of one process; a last line cut short by a kill is left out."""
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def name_digests(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every digest of a line under a name that begins with its kind."""
    for worker, losses in row["losses"].items():
        for number, digest in enumerate(losses):
            yield f"loss {number} of logical worker {worker}", digest
    stock = row["roster"] == "reference"
    for name, digest in row["tensors"].items():
        if not (stock and name.startswith(OF_RANK_0) and row["worker"] != 0):
            yield name, digest


def check_reference(records: Records) -> None:
    """Raise when the processes of a reference disagree among themselves, for then it refers to nothing."""
    for step, tensors in records.items():
        for name, digests in tensors.items():
            if len(digests) > 1:
                raise TrainingError(
                    f"the reference run disagrees with itself: after step {step}, {name} has {len(digests)} values in "
                    "its processes; they must be equal. Look for randomness that is not seeded, for threads > 1, or "
                    "for a loss by another method than calling the model (model.loss(x)): DDP sums no such gradients"
                )


def find_difference(reference: Records, run: Records) -> Difference | None:
    """The first step and tensor in which any process of the run is not the reference, if there is one."""
    for step, tensors in reference.items():
        seen = run.get(step, {})
        for name in sorted({**tensors, **seen}, key=rank_cause):
            if seen.get(name) != tensors.get(name):
                return Difference(step, name)
    return None


def rank_cause(name: str) -> int:
    """The place of a tensor's kind among those that cause one another within a step."""
    return CAUSES.index(name.split()[0])
