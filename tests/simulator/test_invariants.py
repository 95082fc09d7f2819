"""What holds for every policy on every trace: shares from the curve, repeatable decisions, no more than the optimum."""

from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import pytest
from experiments.optimum import upper_bound
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from springtide.core.curves import Curve
from springtide.core.decisions import Answer, Decide, Decision, JobView, Snapshot
from springtide.core.devices import Cluster, parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.policies import POLICIES, decide, find_policy
from springtide.simulator.front import replay
from springtide.simulator.reports import ReplayRun, SimulationReport

CURVES = (
    Curve((1, 2, 4, 8), (1.0, 1.9, 3.5, 6.0)),
    Curve((1, 2, 4, 8), (1.0, 1.3, 1.4, 1.2)),
    Curve((1, 2, 4), (2.0, 1.5, 2.4)),
)
CLUSTERS = tuple(map(parse_cluster, ("1x4:a100", "2x4:a100", "3x2:a100")))
PROMISING = tuple(name for name in ("elasticflow", "springtide") if name in POLICIES)


@dataclass(slots=True)
class Log:
    """An Observer that writes everything down and checks shares on the way."""

    lines: list[str] = field(default_factory=list)

    def arrived(self, job: Job, now_s: float) -> None:
        self.lines.append(f"{now_s!r} arrived {job.id}")

    def answered(self, job_id: JobId, answer: Answer, now_s: float) -> None:
        self.lines.append(f"{now_s!r} answered {job_id} {answer!r}")

    def reallocated(self, before: JobView, after: JobView, now_s: float) -> None:
        assert after.share == 0 or after.share in after.job.curve.shares
        self.lines.append(f"{now_s!r} reallocated {after.job.id} {after.devices}")

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        assert last.progress.work_left_at(now_s) == pytest.approx(0.0, abs=1e-6 * last.job.work)
        self.lines.append(f"{now_s!r} finished {last.job.id}")


@dataclass(frozen=True, slots=True)
class Case:
    """A drawn set of jobs on a cluster."""

    jobs: tuple[Job, ...]
    cluster: Cluster

    def run(self, chosen: Decide) -> tuple[SimulationReport, list[str]]:
        log = Log()
        return replay(ReplayRun("drawn", "", self.jobs, self.cluster), chosen, (log,)), log.lines


@st.composite
def draw_cases(draw: st.DrawFn) -> Case:
    """Up to nine jobs that come close together, some at one instant, some without a deadline."""
    cluster = draw(st.sampled_from(CLUSTERS))
    overhead = draw(st.sampled_from((Overhead(), Overhead(2.0, 2.0), Overhead(base_s=30.0))))
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 20),
                st.integers(20, 2000),
                st.sampled_from((0.5, 0.8, 1.0, 1.5, 3.0, inf)),
                st.sampled_from(CURVES),
                st.sampled_from((1, 2, 4)),
            ),
            min_size=1,
            max_size=9,
        )
    )
    rows.sort(key=lambda row: row[0])
    jobs = []
    for index, (submit, work, factor, curve, share) in enumerate(rows):
        deadline_s = 30.0 * submit + factor * work / curve.rate(share)
        capped = curve.capped(cluster.total)
        jobs.append(Job(JobId(f"j{index}"), index, 30.0 * submit, float(work), capped, deadline_s, share, overhead))
    return Case(tuple(jobs), cluster)


def forget(chosen: Decide, now_s: float, snapshot: Snapshot) -> Decision:
    """Decide without what was cached."""
    return chosen(now_s, replace(snapshot, cache=None))


few = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("policy", POLICIES)
@few
@given(case=draw_cases())
def test_decisions_repeat_with_and_without_cache(policy: str, case: Case) -> None:
    chosen = partial(decide, find_policy(policy))
    _, first = case.run(chosen)
    _, second = case.run(chosen)
    _, forgetful = case.run(partial(forget, chosen))
    assert first == second
    assert first == forgetful


@pytest.mark.parametrize("policy", POLICIES)
@few
@given(case=draw_cases())
def test_no_policy_beats_the_bound_and_every_admitted_job_ends(policy: str, case: Case) -> None:
    report, _ = case.run(partial(decide, find_policy(policy)))
    assert report.met + report.met_unpromised <= upper_bound(case.jobs, case.cluster).upper
    assert report.finished >= report.admitted
    assert report.cluster_efficiency >= 0.0 and 0.0 <= report.gpu_utilization <= 1.0 + 1e-9


@pytest.mark.parametrize("policy", PROMISING)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=draw_cases())
def test_an_admitted_deadline_is_never_missed(policy: str, case: Case) -> None:
    report, _ = case.run(partial(decide, find_policy(policy)))
    assert report.late_admitted == 0
    assert report.met_unpromised == 0
