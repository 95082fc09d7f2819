"""Bits equal to stock DDP: every example on every number of processes, uneven mappings, random rescales and kills.

For N logical workers: each P in 1..N with the even mapping and one seeded uneven one, and seeded random schedules.
Prints the share of runs whose every step has stock DDP's bits; exits 1 if any has not.
"""

import argparse
import random
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from springtide.examples import NAMES, folder
from springtide.training.cases import Case, draw_case, draw_mapping
from springtide.training.rosters import spread
from springtide.training.verify import Subject, Verdict, verify

# Little data, so that a run is seconds and crosses from epoch to epoch several times; enough for eight workers.
ARGUMENTS = {
    "cnn": ("--epochs", "50", "--batch-size", "36"),
    "gpt": ("--epochs", "50", "--windows", "80", "--batch-size", "2"),
    "recommender": ("--epochs", "50", "--batch-size", "1000"),
    "resnet": ("--epochs", "50", "--images", "160", "--batch-size", "4"),
}


def main() -> None:
    """Verify everything asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", default=",".join(NAMES))
    parser.add_argument("--workers", default="4,8", help="numbers of logical workers")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--schedules", type=int, default=20, help="random rescale and kill schedules")
    args = parser.parse_args()
    table = Table("example", "N", "runs", "steps each", "identical", "first difference")
    failed = False
    for name in args.examples.split(","):
        for workers in map(int, args.workers.split(",")):
            subject = Subject(folder(name) / "train.py", ARGUMENTS[name], workers, args.steps)
            cases = [*plan_mappings(workers), *(draw_case(seed, workers, args.steps) for seed in range(args.schedules))]
            verdict = verify(subject, "ddp", cases, lambda line: print(line, file=sys.stderr, flush=True))
            table.add_row(name, str(workers), str(len(cases)), str(args.steps), *describe(verdict))
            failed |= not verdict.identical
    Console().print(table)
    raise SystemExit(int(failed))


def plan_mappings(workers: int) -> Iterator[Case]:
    """Each number of processes with the even mapping, and with a seeded uneven one where there is any."""
    for processes in range(1, workers + 1):
        even = spread(workers, processes)
        yield Case(f"{processes}", ((0, even),))
        draws = (draw_mapping(random.Random(seed), workers, processes) for seed in range(100))
        uneven = next((mapping for mapping in draws if mapping != even), None)
        if uneven is not None:
            yield Case("+".join(map(str, uneven)), ((0, uneven),))


def describe(verdict: Verdict) -> tuple[str, str]:
    """How many cases are identical, and where the first of the others differs."""
    same = sum(outcome.identical for outcome in verdict.outcomes)
    other = next((outcome for outcome in verdict.outcomes if not outcome.identical), None)
    where = "" if other is None else f"{other.name}: {other.error or other.difference}"
    return f"{100 * same / len(verdict.outcomes):.0f} %", where


if __name__ == "__main__":
    main()
