"""The seed of a night's nonsense, how much of it there is, and how it is counted.

`SPRINGTIDE_SEED` chooses another night's, `SPRINGTIDE_CASES` multiplies it.
"""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

SEED = int(os.environ.get("SPRINGTIDE_SEED", "14"))
TIMES = float(os.environ.get("SPRINGTIDE_CASES", "1"))
#: The property of a test's report that holds what became of its cases; added up in `conftest`.
CASES = "cases"
Record: TypeAlias = Callable[[str, object], None]


def count(cases: int) -> range:
    """So many cases, or more where that was asked for."""
    return range(round(cases * TIMES))


def report(record: Record, what: str, seen: Counter[Any]) -> None:
    """Have it told at the end of the run what became of all cases."""
    told = ", ".join(f"{outcome} {number}" for outcome, number in sorted(seen.items(), key=str))
    record(CASES, [what, seen.total(), told])
