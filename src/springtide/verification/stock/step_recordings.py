"""What a recorded run of any script was: per rank, every optimizer step with a digest of each parameter.

The shim writes lines (`shim/sitecustomize.py`); here they become values, and a file that another day's run can be
compared with. Nothing here runs anything.
"""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from springtide.errors import InputError, TrainingError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class RecordedParameter:
    """A parameter as an optimizer of one process holds it: of a sharded one, the shard."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RecordedOptimizer:
    """An optimizer of a process, in the order in which they first stepped."""

    class_name: str
    parameters: tuple[RecordedParameter, ...]


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step of one optimizer: its number there, from 1, and a digest per parameter."""

    optimizer: int
    step: int
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankRecording:
    """What one process did; a rank that was started again has several, told apart by `start`."""

    rank: int
    start: int
    optimizers: tuple[RecordedOptimizer, ...]
    steps: tuple[RecordedStep, ...]


@dataclass(frozen=True, slots=True)
class StepRecording:
    """A whole run: its command, what it ran on, and its processes by rank."""

    command: tuple[str, ...]
    environment: Mapping[str, Any]
    every: int
    ranks: tuple[RankRecording, ...]
    #: Share of a step's time that the recording itself took, on the rank where that is most.
    overhead: float

    @property
    def steps(self) -> int:
        """Optimizer steps that were recorded on the rank that took most."""
        return max((len(rank.steps) for rank in self.ranks), default=0)


def read_shim_files(folder: Path, command: Sequence[str], every: int) -> StepRecording:
    """The recording of a run that has ended, from the lines that its processes wrote."""
    files = [list(read_lines(file)) for file in sorted(folder.glob("*.jsonl"))]
    files = [lines for lines in files if lines]
    starts: dict[int, int] = {}
    ranks = []
    for lines in files:
        rank = int(lines[0]["process"]["rank"])
        ranks.append(read_rank(lines, rank, starts.get(rank, 0)))
        starts[rank] = starts.get(rank, 0) + 1
    environment = files[0][0]["environment"] if files else {}
    overhead = max((measure_overhead(lines) for lines in files), default=0.0)
    return StepRecording(tuple(command), environment, every, tuple(ranks), overhead)


def read_lines(file: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of one process; a last line cut short by a kill is left out."""
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def read_rank(lines: Sequence[Mapping[str, Any]], rank: int, start: int) -> RankRecording:
    """One process; raise if its recorder failed, for then nothing is known of the steps that followed."""
    optimizers: dict[int, RecordedOptimizer] = {}
    steps: list[RecordedStep] = []
    for line in lines:
        if "error" in line:
            raise TrainingError(f"recording rank {rank} failed after {len(steps)} steps: {line['error']}")
        if "described" in line:
            optimizers[line["described"]] = read_optimizer(line)
        elif "digests" in line:
            steps.append(RecordedStep(line["optimizer"], line["step"], tuple(line["digests"])))
    return RankRecording(rank, start, tuple(optimizers[number] for number in sorted(optimizers)), tuple(steps))


def read_optimizer(line: Mapping[str, Any]) -> RecordedOptimizer:
    """An optimizer as its line says."""
    parameters = (RecordedParameter(one["name"], one["dtype"], tuple(one["shape"])) for one in line["parameters"])
    return RecordedOptimizer(line["class"], tuple(parameters))


def measure_overhead(lines: Sequence[Mapping[str, Any]]) -> float:
    """What share of a recorded step, from the end of the one before to its own, was the recorder's: of medians.

    The first step is left out, for naming the parameters is done once.
    """
    steps = [line for line in lines if "took_s" in line]
    if len(steps) < 2:
        return 0.0
    lasted_s = statistics.median(after["at_s"] - before["at_s"] for before, after in pairwise(steps))
    return float(statistics.median(line["took_s"] for line in steps[1:]) / lasted_s)


def recording_to_json(recording: StepRecording) -> dict[str, Any]:
    """The document that `--record` writes."""
    return {
        "schema": SCHEMA,
        "command": list(recording.command),
        "environment": dict(recording.environment),
        "every": recording.every,
        "overhead": recording.overhead,
        "ranks": [rank_to_json(rank) for rank in recording.ranks],
    }


def rank_to_json(rank: RankRecording) -> dict[str, Any]:
    """One process of the document; a step is [optimizer, step, digest, ...]."""
    optimizers = [
        {
            "class": one.class_name,
            "parameters": [{"name": p.name, "dtype": p.dtype, "shape": list(p.shape)} for p in one.parameters],
        }
        for one in rank.optimizers
    ]
    steps = [[one.optimizer, one.step, *one.digests] for one in rank.steps]
    return {"rank": rank.rank, "start": rank.start, "optimizers": optimizers, "steps": steps}


def load_recording(file: Path) -> StepRecording:
    """A recording of another day."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(f"its schema is {document['schema']}, this version reads {SCHEMA}")
        ranks = tuple(rank_from_json(rank) for rank in document["ranks"])
        command, environment = tuple(document["command"]), document["environment"]
        return StepRecording(command, environment, int(document["every"]), ranks, float(document["overhead"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} is no recording of `springtide verify --stock --record`: {type(error).__name__}: {error}"
        ) from None


def rank_from_json(document: Mapping[str, Any]) -> RankRecording:
    """One process of a document."""
    optimizers = tuple(read_optimizer(one) for one in document["optimizers"])
    steps = tuple(RecordedStep(optimizer, step, tuple(digests)) for optimizer, step, *digests in document["steps"])
    return RankRecording(document["rank"], document["start"], optimizers, steps)
