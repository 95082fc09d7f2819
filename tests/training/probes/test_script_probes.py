"""One-feature scripts against stock DDP by hand: equal by bits on 1, 3 and N processes, or refused in a sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.training.probes.probe_page import GROUPS, PAGE

ROOT = Path(__file__).parents[3]
VERDICTS = {"equal", "equal on any size", "refused"}


def run_probes(which: str) -> dict[str, str]:
    """The verdict on each probe; those of one set share a process that imports torch for them all."""
    command = [sys.executable, "-m", "tests.training.probes.probe_runner", which]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row["verdict"] for row in map(json.loads, done.stdout.splitlines())}


def check(verdicts: dict[str, str], fewest: int) -> None:
    assert len(verdicts) >= fewest
    assert {name: verdict for name, verdict in verdicts.items() if verdict not in VERDICTS} == {}


def test_the_short_set_has_one_of_each_kind() -> None:
    assert [group for group, probes in GROUPS.items() if not any(probe.short for probe in probes)] == []


def test_the_short_set_is_equal_or_refused() -> None:
    check(run_probes("short"), 20)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_probes_are_equal_or_refused() -> None:
    check(run_probes("all"), 320)


def test_the_page_of_probes_has_them_all() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    shown = {row[0][2:]: row[1] for row in rows if row[0] != "| Probe"}
    assert set(shown) == {probe.name for probes in GROUPS.values() for probe in probes}
    assert set(shown.values()) <= VERDICTS
