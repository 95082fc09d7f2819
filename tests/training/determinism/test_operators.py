"""Level D2 across emulated device types: D1 breaks, D2 holds, and what was not tested is refused by name."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.training.equality import EqualityRuns

from springtide.errors import NondeterminismError, TrainingError
from springtide.training.determinism.operators import EXACT, ORDERED, check_operators

ZOO = Path(__file__).parents[1] / "scripts" / "zoo.py"

#: Environment, threads, oneDNN: what makes one CPU behave like several device types.
DEVICE_TYPES: list[tuple[dict[str, str], int, bool]] = [
    ({}, 1, True),
    ({}, 2, True),
    ({}, 1, False),
    ({"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}, 1, True),
]


def run_zoo(level: str) -> list[Any]:
    """What the zoo printed on each device type."""
    arguments = [json.dumps([level, *device_type]) for device_type in DEVICE_TYPES]
    command = [sys.executable, str(ZOO), *arguments]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "2"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_d2_holds_across_device_types_on_its_whole_list() -> None:
    results = run_zoo("D2")
    assert len(results) == len(DEVICE_TYPES)
    assert all(result["digests"] == results[0]["digests"] for result in results)
    assert set(results[0]["operators"]) >= ORDERED
    check_operators(set(results[0]["operators"]))


def test_d1_breaks_across_device_types() -> None:
    plain, *others = run_zoo("D1")
    assert len(others) == len(DEVICE_TYPES) - 1
    assert all(other["digests"] != plain["digests"] for other in others)


def test_unknown_operators_are_named() -> None:
    with pytest.raises(NondeterminismError, match="fft_rfft, svd"):
        check_operators({"add", "svd", "fft_rfft"})
    assert not EXACT & ORDERED


def test_d2_trains_and_refuses_what_was_not_tested(equality: EqualityRuns) -> None:
    one, _ = equality.run({"model": "cnn"}, [(0, "1")], steps=4, level="D2")
    two, _ = equality.run({"model": "cnn"}, [(0, "3+1")], steps=4, level="D2")
    assert one == two
    with pytest.raises(TrainingError, match="level D2 was not tested with"):
        equality.run({"model": "exotic"}, [(0, "1")], steps=4, level="D2")
