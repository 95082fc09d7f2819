"""Facts beside beliefs: what is drawn, what is learned, what a failed node takes, and what promises then are worth."""

from dataclasses import replace
from functools import partial
from math import exp, inf, log
from statistics import fmean, stdev

import pytest
from benchmarks.calibration import bin_outcomes
from tests.policies.replays import JobSketch, Replay, build_jobs

from springtide.core.decisions import Answer, Decision, JobView, Plan, Promise, Segment, Snapshot, Status
from springtide.core.devices import NodeSlice, parse_cluster
from springtide.core.jobs import Job, JobId
from springtide.core.world import World
from springtide.errors import InputError
from springtide.policies import decide, find_policy
from springtide.simulator.calibration import replay_uncertain
from springtide.simulator.engine import Simulation
from springtide.simulator.front import load_trace
from springtide.simulator.scenarios import load_scenario
from springtide.simulator.traces import Trace
from springtide.simulator.uncertainty import (
    Beliefs,
    Faults,
    SpeedLog,
    Uncertainty,
    draw_facts,
    parse_faults,
    quantile_poisson,
    run_uncertain,
    sum_poisson,
)
from springtide.throughput.fault_chances import FaultReserve, find_chance
from springtide.throughput.overheads import parse_overhead


def draw(text: str, cluster: str = "4x8:a100") -> Trace:
    machines = parse_cluster(cluster)
    return load_trace(text, load_scenario(machines, None, parse_overhead("elasticflow", machines.total)))


def run(policy: str, sketches: list[JobSketch], uncertain: Uncertainty, cluster: str = "2x4:cpu") -> Replay:
    replay = Replay()
    entry = find_policy(policy)
    run_uncertain(build_jobs(sketches), parse_cluster(cluster), partial(decide, entry), replay, uncertain)
    return replay


def test_facts_are_the_same_for_a_seed_and_spread_as_stated() -> None:
    jobs = build_jobs([JobSketch(100.0)] * 20) * 30
    facts = draw_facts(jobs, Uncertainty(speed_error=0.1, steps_error=0.2, seed=3))
    assert facts == draw_facts(jobs, Uncertainty(speed_error=0.1, steps_error=0.2, seed=3))
    speeds = [job.curve.rate(1) for job in facts]
    assert fmean(speeds) == pytest.approx(1.0, abs=0.02)
    assert stdev(speeds) == pytest.approx(0.1, rel=0.15)
    assert stdev(job.work for job in facts) == pytest.approx(20.0, rel=0.2)


def test_one_error_does_not_change_the_draws_of_the_other() -> None:
    jobs = build_jobs([JobSketch(100.0)] * 5)
    alone = draw_facts(jobs, Uncertainty(steps_error=0.2))
    both = draw_facts(jobs, Uncertainty(speed_error=0.1, steps_error=0.2))
    assert [job.work for job in alone] == [job.work for job in both]


def test_without_errors_and_faults_nothing_is_different() -> None:
    sketches = [JobSketch(1000.0, 30.0 * number, deadline_s=30.0 * number + 900.0) for number in range(6)]
    plain = Replay()
    entry = find_policy("springtide")
    Simulation(parse_cluster("2x4:cpu"), partial(decide, entry), plain).run(build_jobs(sketches))
    assert run("springtide", sketches, Uncertainty()).finishes == pytest.approx(plain.finishes)


def test_a_speed_is_believed_at_its_slow_end_and_learned_in_a_minute() -> None:
    seen: list[tuple[float, Job]] = []

    def watch(now_s: float, snapshot: Snapshot) -> Decision:
        seen.extend((now_s, view.job) for view in snapshot.jobs.values())
        return decide(find_policy("fifo"), now_s, snapshot)

    jobs = build_jobs([JobSketch(1000.0), JobSketch(1.0, 30.0), JobSketch(1.0, 100.0)])
    uncertain = Uncertainty(speed_error=0.1, confidence=0.95)
    (fact, *_) = draw_facts(jobs, uncertain)
    run_uncertain(jobs, parse_cluster("1x4:cpu"), watch, Replay(), uncertain)
    (before,) = [job for now_s, job in seen if now_s == 30.0 and job.id == "a"]
    (after,) = [job for now_s, job in seen if now_s == 100.0 and job.id == "a"]
    assert before.curve.rate(1) == pytest.approx(exp(-1.645 * 0.1), rel=1e-3)
    assert after.curve.rate(1) == pytest.approx(fact.curve.rate(1))


class Veil:
    """Beliefs about jobs that are put on nodes by hand, and what a policy would see of them."""

    def __init__(self, sketches: list[JobSketch], uncertain: Uncertainty, cluster: str = "2x4:cpu") -> None:
        self.jobs, machines = build_jobs(sketches), parse_cluster(cluster)
        self.world = World(machines)
        self.beliefs = Beliefs(self.see, {job.id: job for job in self.jobs}, machines, uncertain)
        self.seen: Snapshot
        self.decision = Decision()
        for job in self.jobs:
            self.world.arrive(job, 0.0)

    def see(self, now_s: float, snapshot: Snapshot) -> Decision:
        self.seen = snapshot
        return self.decision

    def put(self, name: str, node: int, now_s: float, factor: float = 1.0) -> None:
        """Put a job on a whole node, where it has this part of its speed."""
        self.world.apply(Decision(allocations={JobId(name): (NodeSlice(node, 0b1111),)}), now_s)
        progress = self.world.jobs[JobId(name)].progress
        self.world.observe(JobId(name), replace(progress, rate=progress.rate * factor), now_s)

    def look(self, now_s: float, name: str = "a") -> JobView:
        """What the policy sees of a job."""
        self.beliefs(now_s, self.world.snapshot())
        return self.seen.jobs[JobId(name)]


def test_speeds_are_learned_while_a_node_is_down() -> None:
    veil = Veil([JobSketch(1e6)], Uncertainty(speed_error=0.1))
    veil.put("a", 0, 0.0, 0.8)
    veil.beliefs.down.add(1)
    assert veil.look(100.0).job.curve.rate(4) == pytest.approx(3.2)


def test_a_speed_is_what_was_measured_where_the_job_is_now() -> None:
    veil = Veil([JobSketch(1e6, deadline_s=3e5)], Uncertainty(speed_error=0.1))
    veil.put("a", 0, 0.0, 0.5)
    assert veil.look(100.0).progress.rate == pytest.approx(2.0)
    veil.put("a", 1, 200.0)
    assert veil.look(300.0).progress.rate == pytest.approx(4.0), "the slow node was not the job's fault"
    veil.put("a", 0, 400.0, 0.5)
    ends_s = [veil.look(now_s).progress.finish_s for now_s in (430.0, 500.0)]
    assert ends_s[0] < 3e5 < ends_s[1], "back on it, and the danger shows"


def test_the_reserve_of_a_job_that_waits_follows_the_faults_seen() -> None:
    veil = Veil([JobSketch(1e6)], Uncertainty())
    before = veil.look(0.0).job.work
    veil.beliefs.log.node_s, veil.beliefs.log.failures = 1e6, 10
    assert veil.look(10.0).job.work > before
    veil.beliefs.log.failures = 20
    assert veil.look(20.0).job.work > before


def test_a_promise_keeps_the_reserve_it_was_made_with() -> None:
    veil = Veil([JobSketch(1e6, deadline_s=1e6)], Uncertainty(speed_error=0.1))
    veil.beliefs.log.node_s, veil.beliefs.log.failures = 1e6, 10
    before = veil.look(0.0).job.work
    promise = Promise(1e6, Plan((Segment(0.0, 4),), 5e5, 5e5))
    admitted = {JobId("a"): Answer(Status.ADMITTED, promised=True)}
    veil.world.apply(Decision(answers=admitted, promises={JobId("a"): promise}), 0.0)
    veil.put("a", 0, 0.0, 0.8)
    veil.beliefs.log.failures = 100
    assert veil.look(100.0).job.curve.rate(4) == pytest.approx(3.2), "it has been measured"
    assert veil.look(100.0).job.work == pytest.approx(before)


def test_what_is_said_of_a_measured_job_counts_slow_nodes_unless_it_is_where_it_was_measured() -> None:
    veil = Veil([JobSketch(1e6), JobSketch(4e4, deadline_s=1e4)], Uncertainty(), "20x4:cpu")
    for node in range(10):
        veil.put("a", node, 100.0 * node, 0.5 if node == 0 else 1.0)
        veil.look(100.0 * node + 60.0)
    decision = Decision(
        answers={JobId("a"): Answer(Status.ADMITTED, promised=True)},
        promises={JobId("a"): Promise(2e6, Plan((Segment(1000.0, 4),), 1.9e6, 1.9e6))},
    )
    veil.decision = decision
    veil.look(1000.0)
    assert veil.beliefs.said == {"a": 1.0}
    veil.decision = Decision()
    veil.world.apply(Decision(allocations={JobId("a"): ()}), 1000.0)
    veil.decision = decision
    veil.look(1000.0)
    assert veil.beliefs.said == {"a": pytest.approx(1.0 - 1 / 11)}


def test_what_slow_nodes_take_is_planned_for_and_said() -> None:
    sketches = [JobSketch(1e6), JobSketch(4e4, deadline_s=10_500.0), JobSketch(4e4, deadline_s=1e6)]
    veil = Veil(sketches, Uncertainty(confidence=0.9), "20x4:cpu")
    for node in range(19):
        veil.put("a", node, 100.0 * node, 0.5 if node == 18 else 1.0)
        veil.look(100.0 * node + 60.0)
    assert veil.beliefs.speeds == SpeedLog(20, 1, log(2.0))
    assert veil.look(2000.0, "b").job.curve.rate(4) == 4.0, "one place in twenty is rarer than one job in ten"
    promises = {
        job_id: Promise(due_s, Plan((Segment(0.0, 4),), 1e4, 1e4)) for job_id, due_s in (("b", 10_500.0), ("c", 1e6))
    }
    veil.decision = Decision(
        answers={JobId(job_id): Answer(Status.ADMITTED, promised=True) for job_id in promises},
        promises={JobId(job_id): promise for job_id, promise in promises.items()},
    )
    veil.look(0.0)
    assert veil.beliefs.said == {"b": pytest.approx(0.95), "c": 1.0}
    veil.decision = Decision()
    for node in range(3):
        veil.put("a", 19 - node, 2100.0 + 100.0 * node, 0.5)
        veil.look(2160.0 + 100.0 * node)
    assert veil.look(3000.0, "b").job.curve.rate(4) == pytest.approx(2.0)


def test_a_failed_node_stops_its_jobs_and_undoes_their_work() -> None:
    sketches = [JobSketch(36_000.0, requested=4)]
    calm = run("fifo", sketches, Uncertainty())
    stormy = run("fifo", sketches, Uncertainty(faults=Faults(mtbf=1.0, mttr=0.1)))
    assert calm.finishes["a"] == 9000.0
    assert stormy.finishes["a"] > 9000.0
    assert 0 in [share for _, share in stormy.changes["a"]]


def test_a_slow_node_slows_its_jobs() -> None:
    slow = run("fifo", [JobSketch(1000.0)], Uncertainty(faults=Faults(slow=1.0, slow_speed=0.5)))
    assert slow.finishes["a"] == 2000.0


def test_faults_are_parsed_and_checked() -> None:
    assert parse_faults("mtbf=100,mttr=2") == Faults(mtbf=100.0, mttr=2.0)
    assert Faults(mtbf=inf, device_mtbf=inf).node_rate(8) == 0.0
    with pytest.raises(InputError, match=r"mttr=0\.0 must be positive hours"):
        parse_faults("mttr=0")
    with pytest.raises(InputError, match="unknown key 'mtfb'"):
        parse_faults("mtfb=3")
    with pytest.raises(InputError, match=r"confidence 1\.0 must be"):
        Uncertainty(confidence=1.0)


def test_the_reserve_is_a_quantile_of_what_was_seen() -> None:
    assert quantile_poisson(0.0, 0.99) == 0
    assert quantile_poisson(1.0, 0.9) == 2
    assert sum_poisson(1.0, 2) == pytest.approx(2.5 * exp(-1.0))


def test_a_chance_counts_room_and_faults() -> None:
    assert find_chance(1.0, FaultReserve(), 0.05, 0.95) == pytest.approx(0.95)
    assert find_chance(exp(0.05), FaultReserve(), 0.05, 0.95) > 0.99
    assert (find_chance(1.0, FaultReserve(), 0.0, 0.95), find_chance(0.9, FaultReserve(), 0.0, 0.95)) == (1.0, 0.0)
    # of a plan with a tenth in reserve, each fault takes a tenth: one is covered, two are where there is room for both
    reserve = FaultReserve(expected=1.0, reserved=0.1, undone=0.1)
    assert find_chance(1.0, reserve, 0.0, 0.95) == pytest.approx(sum_poisson(1.0, 1))
    assert find_chance(1.1, reserve, 0.0, 0.95) == pytest.approx(sum_poisson(1.0, 2))
    assert find_chance(100.0, reserve, 0.05, 0.95) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    "uncertain",
    [
        Uncertainty(speed_error=0.05),
        Uncertainty(0.05, faults=Faults(mtbf=100.0)),
        Uncertainty(0.05, faults=Faults(slow=0.25)),
    ],
)
def test_promises_broken_are_no_more_than_was_said(uncertain: Uncertainty) -> None:
    report = replay_uncertain(draw("jobs=150,gap=900,seed=1"), "springtide", parse_cluster("4x8:a100"), uncertain)
    assert report.promised > 100 and report.said is not None and report.kept is not None
    assert report.kept >= uncertain.confidence
    assert abs(report.kept - report.said) < 0.03
    assert len(report.outcomes) == report.promised
    assert fmean(said for said, _ in report.outcomes) == pytest.approx(report.said)
    assert fmean(met for _, met in report.outcomes) == pytest.approx(report.kept)
    assert "outcomes" not in report.to_json()
    assert [len(part) for part in bin_outcomes([(0.0, False), (0.9, True), (1.0, True)])] == [1, 0, 1, 0, 1]


def test_a_larger_confidence_promises_less() -> None:
    trace, cluster = draw("jobs=150,gap=600,seed=1"), parse_cluster("4x8:a100")
    bold, careful = (
        replay_uncertain(trace, "springtide", cluster, Uncertainty(0.15, confidence=confidence))
        for confidence in (0.5, 0.99)
    )
    assert bold.broken > careful.broken
    assert bold.promised > careful.promised


def test_several_device_types_are_refused() -> None:
    with pytest.raises(InputError, match="need a cluster of one group of nodes"):
        run("fifo", [JobSketch(1.0)], Uncertainty(), "1x4:cpu,1x4:gpu")
