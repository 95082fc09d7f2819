"""The first place where two recorded runs part: step, tensor and rank. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from springtide.verification.stock.step_recordings import RankRecording, RecordedOptimizer, StepRecording


class Parting(StrEnum):
    """In what two runs part."""

    VALUES = "values"
    #: Other parameters: another number of them, or other shapes.
    PARAMETERS = "parameters"
    #: Another optimizer stepped, or it had taken another number of steps.
    ORDER = "order"
    #: One run had ended.
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class RecordedDifference:
    """The first difference of a run from its reference; `differing` of `tensors` differ at that step on that rank."""

    parting: Parting
    #: The place in the rank's sequence of recorded steps, from 0; partings are ordered by it.
    index: int
    rank: int
    #: The rank of the reference that it was compared with.
    against_rank: int
    optimizer: int
    step: int
    tensor: str | None = None
    differing: int = 0
    tensors: int = 0


@dataclass(frozen=True, slots=True)
class RankPair:
    """A process of a run and the process of the reference that it is compared with."""

    rank: RankRecording
    reference: RankRecording


def find_parting(reference: StepRecording, run: StepRecording) -> RecordedDifference | None:
    """The earliest difference over all ranks, if there is one; of several at the same place that of the lowest rank."""
    found = [parting for pair in pair_ranks(reference, run) if (parting := compare_ranks(pair)) is not None]
    return min(found, key=lambda parting: (parting.index, parting.rank), default=None)


def pair_ranks(reference: StepRecording, run: StepRecording) -> Iterator[RankPair]:
    """Every process of a run with its counterpart; one beyond the other run's ranks is compared with rank 0 there.

    With as many ranks, or with replicas, this compares every process of both.
    """
    theirs = {(rank.rank, rank.start): rank for rank in reference.ranks}
    mine = {(rank.rank, rank.start): rank for rank in run.ranks}
    for key, rank in mine.items():
        yield RankPair(rank, theirs.get(key, theirs[(0, 0)] if (0, 0) in theirs else reference.ranks[0]))
    for key, rank in theirs.items():
        if key not in mine:
            yield RankPair(mine.get((0, 0), run.ranks[0]), rank)


def compare_ranks(pair: RankPair) -> RecordedDifference | None:
    """The first difference of one process from another."""
    mine, theirs = pair.rank.steps, pair.reference.steps
    for index, (step, expected) in enumerate(zip(mine, theirs, strict=False)):
        if step != expected:
            return describe_parting(pair, index)
    if len(mine) != len(theirs):
        index = min(len(mine), len(theirs))
        longer = mine if len(mine) > index else theirs
        next_step = longer[index]
        return make_parting(pair, Parting.LENGTH, index, next_step.optimizer, next_step.step)
    return None


def describe_parting(pair: RankPair, index: int) -> RecordedDifference:
    """The difference of two processes at a step that they do not share."""
    step, expected = pair.rank.steps[index], pair.reference.steps[index]
    if (step.optimizer, step.step) != (expected.optimizer, expected.step):
        return make_parting(pair, Parting.ORDER, index, step.optimizer, step.step)
    optimizer, theirs = pair.rank.optimizers[step.optimizer], pair.reference.optimizers[step.optimizer]
    if list_shapes(optimizer) != list_shapes(theirs) or len(step.digests) != len(expected.digests):
        return make_parting(pair, Parting.PARAMETERS, index, step.optimizer, step.step)
    places = [place for place, one in enumerate(step.digests) if one != expected.digests[place]]
    return RecordedDifference(
        Parting.VALUES,
        index,
        pair.rank.rank,
        pair.reference.rank,
        step.optimizer,
        step.step,
        optimizer.parameters[places[0]].name,
        len(places),
        len(step.digests),
    )


def make_parting(pair: RankPair, parting: Parting, index: int, optimizer: int, step: int) -> RecordedDifference:
    """A difference that is not one of values."""
    return RecordedDifference(parting, index, pair.rank.rank, pair.reference.rank, optimizer, step)


def list_shapes(optimizer: RecordedOptimizer) -> list[tuple[str, tuple[int, ...]]]:
    """Types and shapes of an optimizer's parameters; names may differ, as under a wrapper."""
    return [(one.dtype, one.shape) for one in optimizer.parameters]


def find_rank_that_differs(run: StepRecording) -> RecordedDifference | None:
    """The first place where ranks of one run differ from its rank 0; replicas never do, shards always."""
    first = [rank for rank in run.ranks if rank.start == 0]
    pairs = [RankPair(rank, first[0]) for rank in first[1:]]
    found = [parting for pair in pairs if (parting := compare_ranks(pair)) is not None]
    return min(found, key=lambda parting: (parting.index, parting.rank), default=None)
