"""Runs for figures: kept when finished, made again when not, and stopped at their limit."""

from pathlib import Path

import pytest
from experiments.caches import Cache
from experiments.simulations import Plan, Scene, load_scene, make_plan_key, run_plan, run_plans

from experiments import simulations
from springtide.simulator.front import simulate

SCENE = Scene("1x8:a100", synthetic="jobs=12,gap=600,seed=3", first=10)


def test_a_run_is_the_simulators_own(tmp_path: Path) -> None:
    (outcome,) = run_plans([Plan(SCENE, "edf", record=True)], Cache(tmp_path), 1, lambda what, done: None)
    trace, cluster = load_scene(SCENE)
    report = simulate(trace, "edf", cluster)
    assert outcome.report is not None
    for key, value in report.to_json().items():
        if key not in ("wall_s", "cpu_s"):
            assert outcome.report[key] == value
    assert outcome.dsr == (report.met + report.met_unpromised) / 10
    assert outcome.steps["submitted"][-1][1] == 10
    assert outcome.steps["admitted"][-1][1] == report.admitted


def test_a_finished_run_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans, cache = [Plan(SCENE, "fifo")], Cache(tmp_path)
    first = run_plans(plans, cache, 1, lambda what, done: None)
    monkeypatch.setattr(simulations, "run_plan", lambda plan: pytest.fail("made twice"))
    assert run_plans(plans, cache, 1, lambda what, done: None) == first


def test_a_run_over_its_limit_is_stopped_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = Scene("2x8:a100", synthetic="jobs=300,gap=600,seed=3")
    assert run_plan(Plan(long, "edf-elastic"), limit_s=0.01) is None
    monkeypatch.setattr(simulations, "run_plan", lambda plan: None)
    cache = Cache(tmp_path)
    (outcome,) = run_plans([Plan(SCENE, "edf")], cache, 1, lambda what, done: None)
    assert (outcome.report, outcome.dsr) == (None, None)
    assert cache.find(make_plan_key(outcome.plan)) is None


def test_keys_know_policy_jobs_and_cluster() -> None:
    others = [
        Plan(SCENE, "fifo"),
        Plan(SCENE, "edf", record=True),
        Plan(Scene("2x8:a100", synthetic=SCENE.synthetic, first=10), "edf"),
        Plan(Scene("1x8:a100", synthetic="jobs=12,gap=600,seed=4", first=10), "edf"),
    ]
    assert len({make_plan_key(plan) for plan in (Plan(SCENE, "edf"), *others)}) == 5
