"""The cloud half of `springtide simulate`, as its command will call it."""

import json
from pathlib import Path

import pytest
from tests.throughput.made_up import make_points

from springtide.cli.plan_cloud import Job, Market
from springtide.cli.simulate_cloud import Draws, simulate_cloud
from springtide.cloud.plans import Limits
from springtide.throughput.points import write_points


def test_spot_and_on_demand_are_simulated_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    points = tmp_path / "points.csv"
    points.write_text(write_points(make_points("net", "T4")), encoding="utf-8")
    job = Job("net", "python train.py", tmp_path, points, None, None, 500_000, 256, None, "D1", None)
    limits = Limits(deadline_s=40 * 3600, most_nodes=8)
    simulate_cloud(job, Market("aws", "us-east-1", "T4", None), limits, Draws(seeds=2), as_json=True)
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(entry["seed"], entry["spot"]) for entry in runs] == [(0, False), (0, True), (1, False), (1, True)]
    assert all(entry["synthetic"] for entry in runs)
    simulate_cloud(job, Market("aws", "us-east-1", "T4", None), limits, Draws(seeds=1), as_json=False)
    assert "synthetic (seed 0)" in capsys.readouterr().out
