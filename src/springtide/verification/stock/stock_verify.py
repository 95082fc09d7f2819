"""Runs of any script against each other or against a recording of another day: the verdict of `verify --stock`."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from springtide.core.shared_types import Tell
from springtide.errors import TrainingError
from springtide.verification.stock.recording_compare import (
    Parting,
    RecordedDifference,
    find_parting,
    find_rank_that_differs,
)
from springtide.verification.stock.step_recordings import StepRecording
from springtide.verification.verdicts import RunOutcome, are_identical

#: Records a command once.
Recorder = Callable[[Sequence[str]], StepRecording]


@dataclass(frozen=True, slots=True)
class StockOutcome(RunOutcome[RecordedDifference]):
    """One run compared with the reference; of one that failed there is nothing to compare."""

    recording: StepRecording | None


@dataclass(frozen=True, slots=True)
class StockVerdict:
    """A reference and the runs compared with it."""

    name: str
    reference: StepRecording
    outcomes: tuple[StockOutcome, ...]

    @property
    def identical(self) -> bool:
        """Whether every run is."""
        return are_identical(self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """The document of `springtide verify --stock -o json`."""
        return {
            "schema": 1,
            "identical": self.identical,
            "reference": describe_recording(self.name, self.reference),
            "runs": [outcome_to_json(outcome) for outcome in self.outcomes],
        }


def compare_repetitions(command: Sequence[str], times: int, record: Recorder, tell: Tell) -> StockVerdict:
    """A command against itself, run so many times in all."""
    tell(f"run 1 of {times}: {shlex.join(command)}")
    reference = record(command)
    names = [f"run {number} of {times}" for number in range(2, times + 1)]
    return StockVerdict(
        f"run 1 of {times}", reference, tuple(judge(name, command, reference, record, tell) for name in names)
    )


def compare_with(
    name: str, reference: StepRecording, command: Sequence[str], record: Recorder, tell: Tell
) -> StockVerdict:
    """One run of a command against a recording."""
    return StockVerdict(name, reference, (judge("this run", command, reference, record, tell),))


def judge(name: str, command: Sequence[str], reference: StepRecording, record: Recorder, tell: Tell) -> StockOutcome:
    """A run of a command compared with the reference; a run that fails is an outcome too."""
    tell(f"{name}: {shlex.join(command)}")
    try:
        recording = record(command)
    except TrainingError as error:
        return StockOutcome(name, None, None, error=str(error))
    return StockOutcome(name, find_parting(reference, recording), recording)


def describe_recording(name: str, recording: StepRecording) -> dict[str, Any]:
    """What a run was, without its digests."""
    within = find_rank_that_differs(recording)
    return {
        "name": name,
        "command": list(recording.command),
        "environment": dict(recording.environment),
        "ranks": len({rank.rank for rank in recording.ranks}),
        "steps": recording.steps,
        "every": recording.every,
        "overhead": recording.overhead,
        "ranks_agree": within is None,
        "ranks_part": None if within is None else difference_to_json(within),
    }


def outcome_to_json(outcome: StockOutcome) -> dict[str, Any]:
    """One run of the document."""
    facts = {"name": outcome.name} if outcome.recording is None else describe_recording(outcome.name, outcome.recording)
    difference = outcome.difference and difference_to_json(outcome.difference)
    return {**facts, "identical": outcome.identical, "first_difference": difference, "error": outcome.error}


def difference_to_json(difference: RecordedDifference) -> dict[str, Any]:
    """A first difference as the document has it."""
    return {
        "what": difference.parting.value,
        "step": difference.step,
        "optimizer": difference.optimizer,
        "tensor": difference.tensor,
        "rank": difference.rank,
        "against_rank": difference.against_rank,
        "differing": difference.differing,
        "tensors": difference.tensors,
    }


def say_difference(difference: RecordedDifference, optimizers: int) -> str:
    """A first difference in words."""
    whose = f" of optimizer {difference.optimizer}" if optimizers > 1 else ""
    where = f"step {difference.step}{whose}, rank {difference.rank}"
    if difference.rank != difference.against_rank:
        where += f" (against rank {difference.against_rank})"
    match difference.parting:
        case Parting.VALUES:
            return f"{where}, {difference.tensor} ({difference.differing} of {difference.tensors} tensors differ)"
        case Parting.PARAMETERS:
            return f"{where}: other parameters or other shapes (shards depend on the number of ranks)"
        case Parting.ORDER:
            return f"{where}: another optimizer stepped, or steps were left out"
        case Parting.LENGTH:
            return f"{where}: taken by one of the runs only; all before it is identical"
