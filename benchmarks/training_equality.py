"""Bits equal to stock DDP: every example on every number of processes, uneven mappings, random rescales and kills.

For N logical workers: each P in 1..N with the even mapping and one seeded uneven one, and seeded random schedules.
Prints the share of steps that have stock DDP's bits; exits 1 unless it is all of them. With --results FILE every
finished case is kept there, and a run of the same code that was interrupted goes on where it was.
"""

import argparse
import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import springtide
from springtide.examples import NAMES, folder
from springtide.training.group.rosters import spread
from springtide.verification.cases import Case, WorkerCounts
from springtide.verification.verify import VerifiedScript, judge, open_bench, outcome_to_json, run_reference

Outcome = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """How an example is run: little data, so that a run is seconds and still crosses several epochs."""

    arguments: tuple[str, ...]
    steps: int


PLANS = {
    "cnn": Plan(("--epochs", "50", "--batch-size", "36"), 12),
    "gpt": Plan(("--epochs", "50", "--windows", "80", "--batch-size", "2"), 12),
    "recommender": Plan(("--epochs", "50", "--batch-size", "1000"), 12),
    "resnet": Plan(("--epochs", "50", "--images", "48", "--batch-size", "2"), 8),
}


@dataclass(slots=True)
class Results:
    """Outcomes of finished cases, in a file if there is one; those of other code do not count."""

    file: Path | None
    code: str
    cases: dict[str, Outcome] = field(default_factory=dict)

    def load(self) -> None:
        """Take over what the file has of the same code."""
        if self.file is not None and self.file.exists():
            kept = json.loads(self.file.read_text())
            self.cases = kept["cases"] if kept["code"] == self.code else {}

    def add(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome, in the file before anything else can happen."""
        self.cases[key] = outcome
        if self.file is not None:
            fresh = self.file.with_suffix(".new")
            fresh.write_text(json.dumps({"schema": 1, "code": self.code, "cases": self.cases}, indent=1))
            os.replace(fresh, self.file)


def main() -> None:
    """Verify everything asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", default=",".join(NAMES))
    parser.add_argument("--workers", default="4,8", help="numbers of logical workers")
    parser.add_argument("--schedules", type=int, default=20, help="random rescale and kill schedules")
    parser.add_argument("--results", type=Path, help="keep finished cases here, and do not run them again")
    args = parser.parse_args()
    results = Results(args.results, fingerprint())
    results.load()
    table = Table("example", "N", "runs", "steps each", "steps identical", "first difference")
    failed = False
    for name in args.examples.split(","):
        for workers in map(int, args.workers.split(",")):
            outcomes = compare(name, workers, args.schedules, results)
            table.add_row(name, str(workers), str(len(outcomes)), str(PLANS[name].steps), *describe(name, outcomes))
            failed |= not all(outcome["identical"] for outcome in outcomes)
    Console().print(table)
    raise SystemExit(int(failed))


def fingerprint() -> str:
    """A hash of all code whose bits are compared: the training runtime, the examples, this plan, and torch."""
    home = Path(springtide.__file__).parent
    files = [*sorted((home / "training").rglob("*.py")), *sorted((home / "examples").rglob("*.py")), Path(__file__)]
    sign = hashlib.sha256(torch.__version__.encode())
    for file in files:
        sign.update(file.read_bytes())
    return sign.hexdigest()


def compare(name: str, workers: int, schedules: int, results: Results) -> list[Outcome]:
    """The outcomes of an example's cases for one N: those kept, and the others run against one DDP reference."""
    plan = PLANS[name]
    cases = [*plan_mappings(workers), *(draw_case(seed, workers, plan.steps) for seed in range(schedules))]
    keys = {f"{name} N={workers} {case.name}": case for case in cases}
    left = {key: case for key, case in keys.items() if key not in results.cases}
    if left:
        subject = VerifiedScript(folder(name) / "train.py", plan.arguments, workers, plan.steps)
        with open_bench(subject) as bench:
            reference = run_reference(bench, "ddp")
            for key, case in left.items():
                outcome = judge(bench, case, reference, bench.folder / "case")
                results.add(key, outcome_to_json(outcome))
                verdict = "identical" if outcome.identical else "DIFFERENT"
                print(f"{time.strftime('%H:%M:%S')} {key}: {verdict}", file=sys.stderr, flush=True)
    return [results.cases[key] for key in keys]


def draw_case(seed: int, workers: int, steps: int, events: int = 4) -> Case:
    """A seeded random schedule of rescales to uneven mappings and of kills."""
    draw = random.Random(seed)
    at = sorted(draw.sample(range(1, steps), events))
    killed = sorted(draw.sample(at, draw.randint(0, events // 2)))
    starts = [0, *(step for step in at if step not in killed)]
    return Case(f"random {seed}", tuple((start, draw_mapping(draw, workers)) for start in starts), tuple(killed))


def draw_mapping(draw: random.Random, workers: int, processes: int | None = None) -> WorkerCounts:
    """A random mapping of the workers, on any number of processes unless one is given."""
    count = processes or draw.randint(1, workers)
    cuts = [0, *sorted(draw.sample(range(1, workers), count - 1)), workers]
    return tuple(after - before for before, after in pairwise(cuts))


def plan_mappings(workers: int) -> Iterator[Case]:
    """Each number of processes with the even mapping, and with a seeded uneven one where there is any."""
    for processes in range(1, workers + 1):
        even = spread(workers, processes)
        yield Case(f"{processes}", ((0, even),))
        draws = (draw_mapping(random.Random(seed), workers, processes) for seed in range(100))
        uneven = next((mapping for mapping in draws if mapping != even), None)
        if uneven is not None:
            yield Case("+".join(map(str, uneven)), ((0, uneven),))


def describe(name: str, outcomes: list[Outcome]) -> tuple[str, str]:
    """How many steps are identical, and where the first of the others differs."""
    total = PLANS[name].steps * len(outcomes)
    same = sum(count_identical(outcome) for outcome in outcomes)
    other = next((outcome for outcome in outcomes if not outcome["identical"]), None)
    where = "" if other is None else f"{other['name']}: {other['error'] or other['first_difference']}"
    return f"{same} of {total} ({100 * same / total:.4g} %)", where


def count_identical(outcome: Outcome) -> int:
    """Steps of a run before it parted from the reference or failed."""
    difference = outcome["first_difference"]
    return int(outcome["steps"] if difference is None else difference["step"] - 1)


if __name__ == "__main__":
    main()
