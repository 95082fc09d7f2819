"""Runs: the same trace and seed give the same report, warmed up before the clock starts, alone or in parallel."""

import sys
from dataclasses import replace
from types import ModuleType
from typing import cast

import pytest

from springtide.core.devices import parse_cluster
from springtide.errors import PolicyError
from springtide.policies import POLICIES, PolicyEntry, find_policy
from springtide.simulator import front
from springtide.simulator.batches import SimulationTask, run_tasks
from springtide.simulator.front import simulate
from springtide.simulator.reports import SimulationReport
from springtide.simulator.scenarios import Scenario
from springtide.simulator.traces import Trace
from springtide.simulator.workloads import Workload, draw_trace
from springtide.throughput.overheads import parse_overhead
from springtide.throughput.tables.profiles import read_profiles

CLUSTER = parse_cluster("2x8:a100")


def draw(seed: int = 0) -> Trace:
    setting = Scenario(CLUSTER, read_profiles(None, ("a100",)), parse_overhead("elasticflow", CLUSTER.total))
    return draw_trace(Workload(jobs=30, gap=900.0, seed=seed, best_effort=0.2), setting)


def untimed(report: SimulationReport) -> SimulationReport:
    return replace(report, wall_s=0.0, cpu_s=0.0)


@pytest.mark.parametrize("policy", ["fifo", "edf"])
def test_the_same_jobs_give_the_same_report(policy: str) -> None:
    assert untimed(simulate(draw(), policy, CLUSTER)) == untimed(simulate(draw(), policy, CLUSTER))


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(PolicyError, match="unknown policy 'nice'"):
        simulate(draw(), "nice", CLUSTER)


def test_a_policy_is_warmed_up_where_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[bool] = []
    module = ModuleType("warm_policy")
    module.__dict__.update(warm=find_policy("fifo").load(), warm_up=lambda: warmed.append(True))
    monkeypatch.setitem(sys.modules, "warm_policy", module)
    monkeypatch.setitem(
        cast(dict[str, PolicyEntry], POLICIES), "warm", PolicyEntry("warm", "warm_policy:warm", warm_up="warm_up")
    )
    simulate(draw(), "warm", CLUSTER)
    assert not warmed, "thirty jobs are simulated before anything could be compiled"
    monkeypatch.setattr(front, "COMPILED_FROM", 30)
    simulate(draw(), "warm", CLUSTER)
    assert warmed == [True]
    find_policy("fifo").compile()
    assert warmed == [True]


def test_parallel_runs_report_the_same_in_the_same_order() -> None:
    tasks = [SimulationTask(draw(seed), policy, CLUSTER, record=True) for seed in (0, 1) for policy in ("fifo", "edf")]
    alone = list(run_tasks(tasks))
    apart = list(run_tasks(tasks, processes=2))
    assert [untimed(outcome.report) for outcome in alone] == [untimed(outcome.report) for outcome in apart]
    assert [outcome.recording for outcome in alone] == [outcome.recording for outcome in apart]


def test_progress_is_told_and_rises() -> None:
    heard: list[tuple[str, float]] = []
    setting = Scenario(CLUSTER, read_profiles(None, ("a100",)))
    trace = draw_trace(Workload(jobs=64), setting)
    list(run_tasks([SimulationTask(trace, "fifo", CLUSTER)], tell=lambda name, done: heard.append((name, done))))
    assert heard and heard[0][0].endswith("fifo")
    assert all(0 < done <= 1 for _, done in heard)
