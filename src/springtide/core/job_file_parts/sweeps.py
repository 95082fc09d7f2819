"""One job file, many jobs: the values of a sweep put into its command, or into its environment. Pure.

A value replaces `{name}` wherever `run` holds that; a name that `run` does not hold becomes an environment variable.
"""

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from springtide.core.job_file import JobFile

#: Jobs that one sweep may make.
MOST_SWEPT = 1000
#: Jobs that can be promised together: each is held against all others until the last is measured.
MOST_WHOLE = 100

SweepValue = str | int | float
SweepCase = Mapping[str, SweepValue]


_MARK = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SweptJob:
    """One job of a sweep: its number from 1, the values that are its own, and its file."""

    number: int
    values: Mapping[str, str]
    job: "JobFile"


def count_cases(grid: Mapping[str, Sequence[SweepValue]] | None, cases: Sequence[SweepCase] | None) -> int:
    """How many jobs a sweep makes, without making them."""
    return len(cases or ()) if grid is None else prod(len(values) for values in grid.values())


def list_cases(
    grid: Mapping[str, Sequence[SweepValue]] | None, cases: Sequence[SweepCase] | None
) -> list[dict[str, str]]:
    """The values of every job: all combinations of a grid, the last name changing fastest, or a list as it stands."""
    if grid is None:
        return [{name: str(value) for name, value in case.items()} for case in cases or ()]
    return [
        dict(zip(grid, (str(value) for value in values), strict=True)) for values in itertools.product(*grid.values())
    ]


def expand_sweep(job: "JobFile") -> tuple[SweptJob, ...]:
    """The jobs that a file with a sweep stands for, each a job file without one."""
    assert job.sweep is not None, "only files with a sweep are expanded"
    plain = job.model_copy(update={"sweep": None})
    cases = list_cases(job.sweep.grid, job.sweep.cases)
    return tuple(SweptJob(number, values, fill(plain, values)) for number, values in enumerate(cases, start=1))


def fill(job: "JobFile", values: Mapping[str, str]) -> "JobFile":
    """A job with values in its command, or in its environment."""
    used = {name for name in values if any(f"{{{name}}}" in word for word in job.words)}
    marks = re.compile(r"\{(" + "|".join(map(re.escape, values)) + r")\}")
    words = [marks.sub(lambda found: values[found[1]], word) for word in job.words]
    rest = {name: value for name, value in values.items() if name not in used}
    run = shlex.join(words) if isinstance(job.run, str) else words
    return type(job).model_validate(job.model_dump(exclude_defaults=True) | {"run": run, "env": {**job.env, **rest}})


def find_unknown_mark(words: Sequence[str], names: Sequence[str]) -> str | None:
    """The first `{name}` in a command whose name has no value in a sweep."""
    marks = (found for word in words for found in _MARK.finditer(word))
    return next((found[0] for found in marks if found[1] not in names), None)


def name_swept(base: str, number: int, count: int) -> str:
    """The name of one job of so many: the array's and a number, all of one length."""
    ending = f"-{number:0{len(str(count))}d}"
    return base[: 63 - len(ending)] + ending
