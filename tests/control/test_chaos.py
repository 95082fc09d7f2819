"""Some of the benchmark's seeded faults, one or more of each kind, on the whole platform with real processes."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import benchmarks
import pytest
from benchmarks.arenas import Step
from benchmarks.chaos import Choice, deal, overlap
from benchmarks.faults import FAULTS
from benchmarks.side_faults import SIDE_FAULTS
from tests.adversary.nights import SEED

ROOT = Path(benchmarks.__file__).parents[1]


#: Every kind of fault that is waited for once, every other one twice.
FEW = 22


@pytest.mark.whole
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("faults", "seed"), [(FEW, 3), pytest.param(54, SEED, marks=pytest.mark.adversary)])
def test_nothing_is_lost_nor_run_twice_and_the_bits_stay(faults: int, seed: int) -> None:
    command = [sys.executable, "-m", "benchmarks.chaos", "--faults", str(faults), "--seed", str(seed), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert all(row["count"] == row["recovered"] >= 1 for row in document["kinds"]), (document, done.stderr)
    totals = document["totals"]
    assert (totals["faults"], totals["lost"], totals["twice"]) == (faults, 0, 0), document
    assert totals["equal"] == totals["jobs"], document
    seen = document["bystander"]
    assert (seen["errors_with_effect"], seen["twice"], seen["odd"]) == (0, 0, []), seen
    assert document["left_behind"] == 0
    assert document["ok"], document  # whether others waited for long is the benchmark's to judge, on an idle machine


def test_a_few_faults_are_of_every_kind() -> None:
    chosen = Choice(FEW, 3, 60.0)
    assert set(deal(chosen.waited_for, Random(0))) == set(FAULTS)
    others = deal(FEW - chosen.waited_for, Random(0), list(SIDE_FAULTS))
    assert all(others.count(kind) == 2 for kind in SIDE_FAULTS)


def test_a_hundred_faults_are_of_every_kind() -> None:
    dealt = deal(100, Random(0))
    assert len(dealt) == 100
    assert all(dealt.count(kind) >= 12 for kind in FAULTS)
    assert dealt == deal(100, Random(0))


def test_processes_that_take_turns_are_seen() -> None:
    handed_over = [Step(1, 1, 0.0), Step(1, 2, 1.0), Step(2, 2, 2.0), Step(2, 3, 3.0)]
    assert not overlap(handed_over)
    assert overlap([*handed_over, Step(1, 4, 2.5)])
