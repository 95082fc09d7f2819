"""A reason for every change of devices: complete under every policy, and as a reader would put it in examples."""

from dataclasses import dataclass, field
from functools import partial
from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from tests.policies.pools.test_partition import draw_cases
from tests.policies.replays import LINEAR, JobSketch, build_jobs
from tests.simulator.test_invariants import Case
from tests.simulator.test_invariants import draw_cases as draw_one_type

from springtide.core.decisions import Cause, Decision, JobView, Progress, Reason, Snapshot, Status
from springtide.core.devices import Cluster, NodeSlice, count_devices, parse_cluster
from springtide.core.jobs import Job, JobId
from springtide.policies import POLICIES, PolicyEntry, decide, find_policy
from springtide.simulator.engine import Simulation
from springtide.simulator.reports import MetricsObserver

FOR_ANOTHER = (Cause.YIELDS, Cause.MOVED)
GAINS = (Cause.PLANNED, Cause.TIGHT, Cause.SPARE, Cause.TURN)


@dataclass(slots=True)
class ReasonLog:
    """Decides, checks the reasons of each decision, and keeps those of each job."""

    entry: PolicyEntry
    told: dict[str, list[tuple[float, Cause, str | None]]] = field(default_factory=dict)

    def decide(self, now_s: float, snapshot: Snapshot) -> Decision:
        decision = decide(self.entry, now_s, snapshot)
        changed = {
            job_id: count_devices(devices) - snapshot.jobs[job_id].share
            for job_id, devices in decision.allocations.items()
            if devices != snapshot.jobs[job_id].devices
        }
        assert changed.keys() == decision.reasons.keys()
        gainers = {job_id for job_id, gain in changed.items() if gain > 0}
        for job_id, reason in decision.reasons.items():
            assert reason.other is None or reason.other in gainers
            assert reason.cause is not Cause.YIELDS or reason.other is not None
            assert (job_id in gainers) == (reason.cause in GAINS) or (reason.cause is Cause.PLANNED)
            self.told.setdefault(job_id, []).append((now_s, reason.cause, reason.other))
        return decision


def tell(policy: str, jobs: list[Job], cluster: Cluster) -> dict[str, list[tuple[float, Cause, str | None]]]:
    """Replay jobs; returns (time, cause, other job) of every change."""
    log = ReasonLog(find_policy(policy))
    Simulation(cluster, log.decide, MetricsObserver()).run(jobs)
    return log.told


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=draw_one_type())
def test_every_change_has_a_reason_on_one_type(policy: str, case: Case) -> None:
    tell(policy, list(case.jobs), case.cluster)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=draw_cases())
def test_every_change_has_a_reason_on_several_types(policy: str, case: tuple[list[Job], Cluster]) -> None:
    tell(policy, *case)


@pytest.mark.parametrize("policy", ["elasticflow", "springtide"])
def test_a_job_grows_into_spare_devices_and_yields_them_to_a_promise(policy: str) -> None:
    """a needs one device, and grows to four; b needs three of them for its deadline; when it ends, a grows again."""
    jobs = build_jobs([JobSketch(100, deadline_s=150), JobSketch(20, 5, deadline_s=16, speeds={1: 1.0, 2: 2.0})])
    told = tell(policy, jobs, parse_cluster("1x4:cpu"))
    assert told["a"][0] == (0.0, Cause.PLANNED, None)
    assert (5.0, Cause.YIELDS, "b") in told["a"]
    assert told["b"] == [(5.0, Cause.PLANNED, None)]
    assert told["a"][-1][1:] == (Cause.SPARE, None)


@pytest.mark.parametrize("policy", ["elasticflow", "springtide"])
def test_best_effort_runs_on_spare_devices_and_yields_to_the_most_urgent(policy: str) -> None:
    jobs = build_jobs([JobSketch(100), JobSketch(40, 5, deadline_s=26), JobSketch(40, 5, deadline_s=25.5)])
    told = tell(policy, jobs, parse_cluster("1x4:cpu"))
    assert told["a"][:2] == [(0.0, Cause.SPARE, None), (5.0, Cause.YIELDS, "c")]


def test_a_job_with_little_slack_says_that_it_goes_before_best_effort_jobs() -> None:
    """Alone on one device b would need 95 of its 100 s; with 190 s it has time, and a starts beside it."""
    speeds = {1: 1.0, 2: 2.0}
    for deadline_s, cause in ((100, Cause.TIGHT), (190, Cause.PLANNED)):
        jobs = build_jobs([JobSketch(200, speeds={1: 1.0}), JobSketch(95, speeds=speeds, deadline_s=deadline_s)])
        told = tell("springtide", jobs, parse_cluster("1x2:cpu"))
        assert told["b"][0] == (0.0, cause, None)


def test_policies_without_promises_give_turns() -> None:
    told = tell(
        "srtf", build_jobs([JobSketch(100, requested=4), JobSketch(10, 5, requested=4)]), parse_cluster("1x4:cpu")
    )
    assert told["b"] == [(5.0, Cause.TURN, None)]
    assert told["a"][1] == (5.0, Cause.YIELDS, "b")


def move_away(now_s: float, snapshot: Snapshot) -> Decision:
    """A policy that starts b on all of the first node, where a is."""
    return Decision(shares={JobId("b"): 4}, optional=frozenset())


def hold(job: Job, *devices: NodeSlice) -> JobView:
    share = count_devices(devices)
    return JobView(job, Progress(job.work, job.curve.rate(share)), Status.ADMITTED, devices, share)


def test_a_job_that_is_moved_knows_for_whom() -> None:
    jobs = build_jobs([JobSketch(100), JobSketch(100), JobSketch(100)])
    views = [hold(jobs[0], NodeSlice(0, 1)), hold(jobs[1]), hold(jobs[2], NodeSlice(1, 1))]
    snapshot = Snapshot(parse_cluster("2x4:cpu"), {view.job.id: view for view in views}, (0b1110, 0b1110))
    reasons = decide(PolicyEntry("moves", function=move_away), 0.0, snapshot).reasons
    assert reasons[JobId("b")] == Reason(Cause.TURN)
    assert [reason for name, reason in reasons.items() if name != "b"] == [Reason(Cause.MOVED, JobId("b"))]


def test_claimed_devices_are_their_owner_s() -> None:
    (job,) = build_jobs([JobSketch(100, speeds=LINEAR)])
    view = hold(job, NodeSlice(0, 0b11))
    snapshot = Snapshot(parse_cluster("1x4:cpu"), {job.id: view}, (0b0000,), leaving=(0b10,))
    decision = decide(find_policy("easyscale-homo"), 0.0, snapshot)
    assert decision.reasons == {"a": Reason(Cause.CLAIMED)}


def test_a_reason_that_a_policy_gives_stays() -> None:
    (job,) = build_jobs([JobSketch(100, deadline_s=inf)])

    def start(now_s: float, snapshot: Snapshot) -> Decision:
        return Decision(shares={job.id: 1}, reasons={job.id: Reason(Cause.NEEDLESS)})

    snapshot = Snapshot(parse_cluster("1x4:cpu"), {job.id: hold(job)}, (0b1111,))
    decided = partial(decide, PolicyEntry("own", function=start))(0.0, snapshot)
    assert decided.reasons == {"a": Reason(Cause.NEEDLESS)}
