"""Every policy on clusters of several device types: levels and promises kept, repeatable, with and without a cache."""

import json
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from springtide.core.curves import Curve
from springtide.core.decisions import Answer, Decision, JobView, Progress, Snapshot, Status
from springtide.core.devices import Cluster, NodeSlice, parse_cluster
from springtide.core.jobs import FREE, Job, JobId, Overhead
from springtide.policies import POLICIES, PolicyEntry, decide, find_policy
from springtide.simulator.engine import Simulation
from springtide.throughput.blends import mix_curves

TWO = parse_cluster("1x4:a100,1x4:t4")
CLUSTERS = (TWO, parse_cluster("1x4:a100,2x2:t4,1x3:t4"), parse_cluster("1x2:t4,2x4:a100,1x3:v100"))
SPEEDS = {"a100": 1.0, "v100": 0.7, "t4": 0.5}
LINEAR = Curve((1, 2, 4), (1.0, 2.0, 4.0))
FLAT = Curve((1, 2, 4), (1.0, 1.6, 2.2))
KEEPS_PROMISES = ("elasticflow", "springtide")
TOLERANCE_S = 1e-6


def make_job(
    index: int,
    work: float,
    submit_s: float = 0.0,
    deadline_s: float = inf,
    cluster: Cluster = TWO,
    level: str = "D1",
    device_types: tuple[str, ...] = (),
    requested: int = 1,
    curve: Curve = LINEAR,
    overhead: Overhead = FREE,
) -> Job:
    """A job with its speeds on some types of a cluster, all if none is named."""
    totals = {name: total for name, total in cluster.totals.items() if name in (device_types or cluster.totals)}
    speeds = {name: curve.scaled(SPEEDS[name]) for name in totals}
    typed = mix_curves(speeds, totals, 1.0 if level == "D2" else None)
    name = JobId(f"j{index}")
    return Job(name, index, submit_s, work, curve, deadline_s, requested, overhead, typed=typed)


@dataclass(slots=True)
class Log:
    """An Observer that writes everything down, and checks every allocation against the levels."""

    cluster: Cluster
    lines: list[str] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    mixes: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    finishes: dict[str, float] = field(default_factory=dict)

    def arrived(self, job: Job, now_s: float) -> None: ...

    def answered(self, job_id: JobId, answer: Answer, now_s: float) -> None:
        self.answers[job_id] = answer
        self.lines.append(f"{now_s!r} {job_id} {answer!r}")

    def reallocated(self, before: JobView, after: JobView, now_s: float) -> None:
        typed, mix = after.job.typed, self.cluster.count_types(after.devices)
        seen = self.mixes.setdefault(after.job.id, [])
        seen.append(mix)
        assert typed is not None and (not mix or typed.rate(mix) > 0)
        assert typed.movable or len({name for each in seen for name in each}) <= 1
        self.lines.append(f"{now_s!r} {after.job.id} {after.devices}")

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        self.finishes[last.job.id] = now_s
        self.lines.append(f"{now_s!r} {last.job.id} finished")


def decide_twice(entry: PolicyEntry, now_s: float, snapshot: Snapshot) -> Decision:
    """The decision, which must be the same without the cache and with the memory read from a file."""
    decision = decide(entry, now_s, snapshot)
    stored = json.loads(json.dumps(dict(snapshot.memory)))
    again = decide(entry, now_s, replace(snapshot, cache=None, memory=stored))
    assert replace(decision, cache=None) == replace(again, cache=None)
    return decision


def run(policy: str, jobs: list[Job], cluster: Cluster = TWO, twice: bool = False) -> Log:
    """Replay jobs; the World refuses devices that are taken, and mixes that a level forbids."""
    log = Log(cluster)
    loop = Simulation(cluster, partial(decide_twice if twice else decide, find_policy(policy)), log)
    loop.run(jobs)
    return log


@st.composite
def draw_cases(draw: st.DrawFn) -> tuple[list[Job], Cluster]:
    """Up to eight jobs of both levels that come close together, with pauses, some without a deadline."""
    cluster = draw(st.sampled_from(CLUSTERS))
    overhead = draw(st.sampled_from((Overhead(), Overhead(2.0, 1.0), Overhead(5.0, start_s=3.0))))
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 12),
                st.integers(5, 300),
                st.sampled_from((0.6, 1.0, 1.3, 2.0, 4.0, inf)),
                st.sampled_from(("D1", "D2")),
                st.sampled_from((LINEAR, FLAT)),
                st.sampled_from(((), ("t4",), ("a100",))),
                st.sampled_from((1, 2, 4)),
            ),
            min_size=1,
            max_size=8,
        )
    )
    jobs, submit_s = [], 0.0
    for index, (gap_s, work, slack, level, curve, device_types, requested) in enumerate(rows):
        submit_s += gap_s
        job = make_job(index, work, submit_s, inf, cluster, level, device_types, requested, curve, overhead)
        jobs.append(replace(job, deadline_s=submit_s + slack * job.alone_s(4) if slack < inf else inf))
    return jobs, cluster


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=draw_cases())
def test_every_policy_decides_legally_and_repeatably(policy: str, case: tuple[list[Job], Cluster]) -> None:
    jobs, cluster = case
    log = run(policy, jobs, cluster, twice=True)
    assert log.lines == run(policy, jobs, cluster).lines
    for job in jobs:
        answer = log.answers[job.id]
        if answer.status is Status.ADMITTED:
            assert job.id in log.finishes, "an admitted job ends"
        if answer.promised and policy in KEEPS_PROMISES:
            assert log.finishes[job.id] <= job.deadline_s + TOLERANCE_S


def test_a_newcomer_goes_where_it_can_start_then_where_it_is_fastest() -> None:
    log = run("gandiva", [make_job(0, 100, requested=4), make_job(1, 100, 1, requested=4)])
    assert log.mixes == {"j0": [{"a100": 4}], "j1": [{"t4": 4}]}


def test_a_newcomer_goes_where_it_would_be_in_time_though_another_type_is_idle() -> None:
    log = run("edf", [make_job(0, 100, deadline_s=100), make_job(1, 30, 1, deadline_s=10)])
    assert log.mixes["j1"] == [{"a100": 4}] and log.finishes["j1"] <= 10


def test_a_newcomer_declined_on_one_type_is_tried_on_the_next() -> None:
    log = run("elasticflow", [make_job(0, 40, deadline_s=10.1), make_job(1, 16, 1, 13)])
    assert [log.answers[name].reason for name in ("j0", "j1")] == ["promised", "promised"]
    assert set(log.mixes["j1"][0]) == {"t4"}


def test_a_refusal_says_what_each_type_lacks() -> None:
    refusal = run("elasticflow", [make_job(0, 100, deadline_s=5)]).answers["j0"]
    assert (refusal.status, refusal.reason) == (Status.DECLINED, "deadline_too_tight")
    assert refusal.sentence.startswith("on a100: needs 25 s even alone")


def test_a_waiting_job_changes_to_a_type_that_comes_free() -> None:
    """j2 waits for the faster type, which is free at 25 s, until the other one is idle at 10 s."""
    jobs = [make_job(0, 100, requested=4), make_job(1, 20, requested=4), make_job(2, 200, 1, requested=4)]
    log = run("tiresias", jobs)
    assert log.mixes["j2"] == [{"t4": 4}] and "10.0 j2" in " ".join(log.lines)


def test_a_job_whose_finish_is_promised_stays_where_it_is() -> None:
    """Chronus keeps no Promise: that j2's leases are reserved on the faster type is remembered beside its pool."""
    jobs = [make_job(0, 160, deadline_s=41, requested=4), make_job(1, 20, requested=4)]
    log = run("chronus", [*jobs, make_job(2, 40, 1, 2000, requested=4)])
    assert log.answers["j2"].promised
    assert log.mixes["j2"] == [{"a100": 4}]


def test_a_job_that_runs_on_no_type_there_is_gets_an_answer() -> None:
    other = parse_cluster("1x4:a100,1x4:h100")
    for policy in ("edf", "springtide"):
        log = run(policy, [make_job(0, 10, deadline_s=50, device_types=("t4",))], other)
        assert (log.answers["j0"].status, log.answers["j0"].reason) == (Status.DECLINED, "no_device_type")


def test_a_job_left_on_two_types_by_another_policy_starts_anew_on_one() -> None:
    job = make_job(0, 100, level="D2")
    held = (NodeSlice(0, 0b1), NodeSlice(1, 0b1))
    mix = {"a100": 1, "t4": 1}
    assert job.typed is not None
    view = JobView(job, Progress(100.0, job.typed.rate(mix)), Status.ADMITTED, held, 2, None, inf, mix=mix)
    view = replace(view, first_device_type="a100", first_start_s=0.0)
    decision = decide(find_policy("edf"), 0.0, Snapshot(TWO, {job.id: view}, (0b1110, 0b1110)))
    assert decision.allocations == {"j0": (NodeSlice(0, 0b1111),)}
