"""The runs that `springtide verify` compares with its reference: sizes, rescale schedules and kills, as plain values.

A mapping is the number of logical workers in each process, in order. Nothing here runs anything.
"""

from dataclasses import dataclass

from springtide.errors import JobError
from springtide.training.group.rosters import parse_size, spread

WorkerCounts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One run: the mapping it has from each step on, and the steps at which one of its processes is killed."""

    name: str
    mappings: tuple[tuple[int, WorkerCounts], ...]
    kills: tuple[int, ...] = ()
    #: Whether stock DistributedDataParallel runs it.
    stock: bool = False


def plan_reference(against: str, workers: int) -> Case:
    """The run that the others are compared with: `ddp`, stock with a rank per worker, or `self`, ours alone."""
    return Case(against, ((0, (1,) * workers if against == "ddp" else (workers,)),), stock=against == "ddp")


def plan_cases(sizes: str, rescale: str, kills: int, workers: int, steps: int) -> list[Case]:
    """Every case that these options ask for, in the order of the table."""
    cases = [Case(size, ((0, parse_size(size, workers)),)) for size in split(sizes)]
    if split(rescale):
        cases.append(plan_rescale(split(rescale), workers, steps))
    if kills:
        cases.append(plan_kills(kills, workers, steps))
    if not cases:
        raise JobError("no sizes, no rescale and no kills: there is nothing to compare; ask for one of them")
    return cases


def choose_sizes(workers: int) -> str:
    """Sizes worth trying: all, half and one process, and two uneven mappings; `4,2,1,2+1+1,3+1` for four workers."""
    nearly_all = "+".join(map(str, spread(workers, max(1, workers - 1))))
    lopsided = f"{workers - 1}+1" if workers > 1 else "1"
    named = [str(workers), str(max(1, workers // 2)), "1", *([nearly_all, lopsided] if workers > 2 else [])]
    return ",".join(dict.fromkeys(named))


def choose_rescale(workers: int, steps: int) -> str:
    """Sizes worth taking in turn, as many as there are steps: `4,1,3,2` for four workers."""
    sizes = [workers, 1, max(1, workers - 1), max(1, workers // 2)]
    return ",".join(map(str, sizes[:steps])) if workers > 1 else ""


def split(text: str) -> list[str]:
    """The parts between commas, without blanks."""
    return [part.strip() for part in text.split(",") if part.strip()]


def plan_rescale(sizes: list[str], workers: int, steps: int) -> Case:
    """A run that takes each size in turn, for equal parts of its steps."""
    starts = [index * steps // len(sizes) for index in range(len(sizes))]
    if len(set(starts)) < len(sizes):
        raise JobError(f"{len(sizes)} sizes do not fit in {steps} steps; each needs at least one, so raise --steps")
    mappings = tuple((start, parse_size(size, workers)) for start, size in zip(starts, sizes, strict=True))
    return Case(f"rescale {','.join(sizes)}", mappings)


def plan_kills(kills: int, workers: int, steps: int) -> Case:
    """A run on two processes, of which one is killed (SIGKILL) at as many steps, spread over the run.

    None at step 1: before it no step has been saved, and starting anew would prove nothing.
    """
    if kills >= steps:
        raise JobError(f"{kills} kills do not fit in {steps} steps; there must be fewer kills than steps")
    at = tuple(max(index + 2, (index + 1) * steps // (kills + 1)) for index in range(kills))
    return Case(f"kill {kills}", ((0, spread(workers, min(2, workers))),), at)
