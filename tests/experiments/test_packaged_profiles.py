"""The packaged tables are what their formula says."""

from pathlib import Path

import pytest
from experiments.packaged_profiles import MACHINES, MODELS, predict_speed, write_tables

from springtide.throughput.tables.profiles import PACKAGED


def test_the_files_are_what_the_formula_writes(tmp_path: Path) -> None:
    write_tables(tmp_path)
    written = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.csv")}
    packaged = {path.relative_to(PACKAGED): path.read_text() for path in PACKAGED.rglob("*.csv")}
    assert written == packaged


def test_one_device_pays_no_communication() -> None:
    model = MODELS["a100"]["resnet50"]
    assert predict_speed(model, MACHINES["a100"], 64, 1) == pytest.approx(1 / (0.024 + 0.0019 * 64))


def test_leaving_the_node_costs_bandwidth() -> None:
    model, machine = MODELS["a100"]["bert"], MACHINES["a100"]
    assert predict_speed(model, machine, 64, 16) < predict_speed(model, machine, 64, 8)
