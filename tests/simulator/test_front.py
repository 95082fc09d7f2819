"""The simulator as a function: traces, policies and clusters in every form, and the example of its docstring."""

import doctest
from dataclasses import replace
from pathlib import Path

import pytest
from tests.policies.replays import JobSketch, build_jobs

from springtide.core.decisions import Answer, Decision, Snapshot, Status
from springtide.core.devices import parse_cluster
from springtide.core.jobs import FREE
from springtide.errors import PolicyError, TraceError
from springtide.policies import PolicyEntry, find_policy
from springtide.policies.fifo import fifo
from springtide.simulator import front
from springtide.simulator.batches import SimulationTask, run_tasks
from springtide.simulator.front import choose_policies, simulate
from springtide.simulator.reports import SimulationReport

JOBS = build_jobs([JobSketch(40, deadline_s=30), JobSketch(10, 5, deadline_s=20)])
GOLDEN = Path(__file__).parent / "golden" / "trace.csv"


def give_one(now_s: float, snapshot: Snapshot) -> Decision:
    """A policy that starts every job on one device, if there is one."""
    free = sum(mask.bit_count() for mask in snapshot.free_masks)
    waiting = [job_id for job_id, view in snapshot.jobs.items() if not view.share][:free]
    answers = dict.fromkeys(snapshot.changes.arrived, Answer(Status.ADMITTED))
    return Decision(answers=answers, shares=dict.fromkeys(waiting, 1))


def untimed(report: SimulationReport) -> SimulationReport:
    return replace(report, wall_s=0.0, cpu_s=0.0)


def test_the_example_runs() -> None:
    found = doctest.testmod(front)
    assert (found.failed, found.attempted > 0) == (0, True)


def test_a_policy_comes_as_a_name_an_entry_or_a_function() -> None:
    reports = [untimed(simulate(JOBS, policy, "1x4:cpu")) for policy in ("fifo", fifo, find_policy("fifo"))]
    assert reports[0] == reports[1] == reports[2] and reports[0].policy == "fifo"
    mine = simulate(JOBS, give_one, parse_cluster("1x4:cpu"))
    assert (mine.policy, mine.finished, mine.rescales) == (f"{__name__}:give_one", 2, 0)
    with pytest.raises(PolicyError, match="must be a function"):
        simulate(JOBS, 17, "1x4:cpu")  # type: ignore[arg-type]


def test_a_trace_comes_as_a_file_a_workload_or_jobs() -> None:
    assert simulate(GOLDEN, "fifo", "2x4:a100").trace == "trace"
    assert simulate(str(GOLDEN), "fifo", "2x4:a100", overhead=FREE).jobs > 1
    assert simulate("jobs=20,gap=900,seed=3", "fifo", "2x4:a100", overhead="constant:5").jobs == 20
    later = [replace(JOBS[0], submit_s=9.0), JOBS[1]]
    assert simulate(later, "fifo", "1x4:cpu").finished == 2
    with pytest.raises(TraceError, match="no jobs to simulate"):
        simulate([], "fifo")
    with pytest.raises(TraceError, match="job id 'a' is used 2 times"):
        simulate([JOBS[0], JOBS[0]], "fifo")


def test_a_module_in_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nearby_policy.py").write_text("from springtide.policies.fifo import fifo as mine\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere", *__import__("sys").path])
    assert simulate(JOBS, "nearby_policy:mine", "1x4:cpu").policy == "fifo"
    assert choose_policies("edf, nearby_policy:mine,edf") == ["edf", "nearby_policy:mine"]
    with pytest.raises(PolicyError, match="cannot be imported"):
        choose_policies("nearby_policy:other")
    with pytest.raises(PolicyError, match="unknown policy 'nice'"):
        choose_policies("nice")


def test_functions_and_entries_run_in_other_processes_where_they_can_be_sent() -> None:
    trace, cluster = front.gather_jobs(JOBS), parse_cluster("1x4:cpu")
    own = PolicyEntry("own", function=give_one)
    tasks = [SimulationTask(trace, policy, cluster) for policy in (give_one, own, "fifo")]
    alone = [untimed(result.report) for result in run_tasks(tasks)]
    assert alone == [untimed(result.report) for result in run_tasks(tasks, processes=2)]
    unsendable = SimulationTask(trace, lambda now_s, snapshot: give_one(now_s, snapshot), cluster)
    with pytest.raises(PolicyError, match="cannot be sent to another process"):
        list(run_tasks([unsendable, *tasks], processes=2))
