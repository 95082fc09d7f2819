"""SkyPilot tasks, and the estimator that SkyPilot can call."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cloud.made_up_cloud import make_catalog, make_machine, make_speeds
from tests.throughput.made_up_points import make_points, make_step_s

from springtide.cloud.planner import search_plans
from springtide.cloud.plans import Limits, RentalPlan, Work
from springtide.cloud.skypilot import STARTUP_S, TaskLaunch, estimate_run_time, export_plan, export_probe, name_bucket
from springtide.errors import CatalogError
from springtide.throughput.tables.points import write_points

LAUNCH = TaskLaunch("net", "python train.py --lr 0.1")


def find_plans(spot: bool, mixes: bool = False) -> tuple[RentalPlan, ...]:
    work = Work("net", 50_000, 256, level="none")
    limits = Limits(deadline_s=7200, spot=spot, on_demand=not spot, most_nodes=8, mixes=mixes)
    return search_plans(make_catalog(), make_speeds(), work, limits).best


def test_a_spot_plan_recovers_and_knows_its_checkpoints() -> None:
    plan = find_plans(spot=True)[0]
    task = export_plan(plan, LAUNCH)
    assert task["num_nodes"] == plan.parts[0].nodes
    assert task["resources"]["use_spot"] is True
    assert task["resources"]["instance_type"] == plan.parts[0].machine.instance_type
    assert task["resources"]["infra"] == f"aws/{plan.parts[0].machine.region}"
    assert plan.checkpoint_every_s is not None
    assert task["envs"]["SPRINGTIDE_CHECKPOINT_EVERY_S"] == f"{plan.checkpoint_every_s:.0f}"
    assert task["run"].endswith("train.py --lr 0.1")


def test_a_spot_task_keeps_its_checkpoints_in_a_bucket_of_its_own() -> None:
    plan = find_plans(spot=True)[0]
    task = export_plan(plan, LAUNCH)
    (folder,) = task["file_mounts"]
    assert task["envs"]["SPRINGTIDE_CHECKPOINT_DIR"].startswith(folder)
    mount = task["file_mounts"][folder]
    assert (mount["store"], mount["mode"]) == ("s3", "MOUNT_CACHED")
    assert mount["name"] == name_bucket(LAUNCH) != name_bucket(replace(LAUNCH, owner="someone else"))


def test_a_bucket_may_be_named_and_on_demand_needs_none() -> None:
    plan = find_plans(spot=False)[0]
    assert "file_mounts" not in export_plan(plan, LAUNCH)
    named = export_plan(plan, replace(LAUNCH, bucket="mine"))
    assert named["file_mounts"]["/checkpoints"]["name"] == "mine"


@given(st.from_regex("[a-z][a-z0-9-]{0,62}", fullmatch=True))
def test_a_bucket_has_a_name_that_clouds_accept(name: str) -> None:
    bucket = name_bucket(TaskLaunch(name, ""))
    assert re.fullmatch("[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", bucket)


def test_a_mix_has_no_skypilot_form() -> None:
    first, second = find_plans(spot=False)[:2]
    mixed = RentalPlan((*first.parts, *second.parts), False, 1.0, first.step_s, first.time_s, first.cost_usd, None)
    with pytest.raises(CatalogError, match="mixes machine types"):
        export_plan(mixed, LAUNCH)


def test_a_probe_tells_its_price() -> None:
    machines = [make_machine("slow", 1), make_machine("middle", 1)]
    probe = export_probe(machines, LAUNCH)
    assert probe.cost_usd == pytest.approx((0.5 + 1.4) / 3)
    assert [task["resources"]["instance_type"] for task in probe.tasks] == ["slow.1", "middle.1"]
    assert all("springtide profile --seconds 600" in task["run"] for task in probe.tasks)


def test_the_estimator_answers_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text(write_points(make_points()), encoding="utf-8")
    estimate = estimate_run_time(path, steps=1000, global_batch=64)
    resources = SimpleNamespace(accelerators={"X100": 4}, instance_type=None)
    assert estimate(resources) == pytest.approx(STARTUP_S + 1000 * make_step_s(1, 4, 16), rel=0.05)
    with pytest.raises(CatalogError, match="no measured device type; there are points of x100"):
        estimate(SimpleNamespace(accelerators={"H100": 8}, instance_type=None))


def test_the_estimator_imports_only_the_standard_library_numpy_and_scipy() -> None:
    code = """
import sys
import numpy, scipy.optimize, scipy.special
before = set(sys.modules)
import springtide.cloud.skypilot
roots = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(roots - set(sys.stdlib_module_names) - {"springtide", "numpy", "scipy"}))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
