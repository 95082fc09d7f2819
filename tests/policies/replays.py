"""Replays for tests of policies: jobs written by hand, a replay of them, and what every decision must satisfy."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from springtide.core.curves import Curve
from springtide.core.decisions import Answer, Decision, JobView, Snapshot, Status
from springtide.core.devices import parse_cluster
from springtide.core.jobs import FREE, Job, JobId, Overhead
from springtide.core.world import list_holders
from springtide.placement.buddy import place
from springtide.policies import Policy
from springtide.simulator.engine import Simulation

LINEAR = {1: 1.0, 2: 2.0, 4: 4.0}


@dataclass(frozen=True, slots=True)
class JobSketch:
    """A job in a few words; `speeds` maps shares to steps per second."""

    work: float
    submit_s: float = 0.0
    requested: int = 1
    deadline_s: float = float("inf")
    speeds: Mapping[int, float] = field(default_factory=lambda: LINEAR)
    overhead: Overhead = FREE
    priority: int = 0


def build_jobs(sketches: Sequence[JobSketch]) -> list[Job]:
    """Jobs a, b, c, ... in the order given, which is that of their submission."""
    return [
        Job(
            JobId(chr(ord("a") + index)),
            index,
            sketch.submit_s,
            sketch.work,
            Curve(tuple(sketch.speeds), tuple(sketch.speeds.values())),
            sketch.deadline_s,
            sketch.requested,
            sketch.overhead,
            priority=sketch.priority,
        )
        for index, sketch in enumerate(sketches)
    ]


@dataclass(slots=True)
class Replay:
    """What was seen of a run: last answers and all of them with their times, (time, share) of each change, finishes."""

    answers: dict[str, Answer] = field(default_factory=dict)
    told: dict[str, list[tuple[float, Answer]]] = field(default_factory=dict)
    changes: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    finishes: dict[str, float] = field(default_factory=dict)
    calls: int = 0

    def arrived(self, job: Job, now_s: float) -> None: ...

    def answered(self, job_id: JobId, answer: Answer, now_s: float) -> None:
        self.answers[job_id] = answer
        self.told.setdefault(job_id, []).append((now_s, answer))

    def reallocated(self, before: JobView, after: JobView, now_s: float) -> None:
        self.changes.setdefault(after.job.id, []).append((now_s, after.share))

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        self.finishes[last.job.id] = now_s

    def first_start(self, job_id: str) -> float:
        """When a job first held devices."""
        return self.changes[job_id][0][0]


def run(policy: Policy, sketches: Sequence[JobSketch], cluster: str = "1x4:cpu", calls: int = 20_000) -> Replay:
    """Replay jobs under a policy, every decision checked; fails if it is called more than `calls` times."""
    replay = Replay()

    def decide(now_s: float, snapshot: Snapshot) -> Decision:
        replay.calls += 1
        assert replay.calls <= calls, f"still not done at {now_s} s"
        return check(policy, now_s, snapshot)

    Simulation(parse_cluster(cluster), decide, replay).run(build_jobs(sketches))
    return replay


def check(policy: Policy, now_s: float, snapshot: Snapshot) -> Decision:
    """The decision of a policy, placed, after a check of all that the contract asks of it."""
    assert [*snapshot.holders] == list_holders(len(snapshot.free_masks), snapshot.jobs)
    decision = policy(now_s, snapshot)
    stored = json.loads(json.dumps(dict(snapshot.memory)))
    again = policy(now_s, replace(snapshot, cache=None, memory=stored))
    assert replace(decision, cache=None) == replace(again, cache=None)
    assert set(snapshot.changes.arrived) <= set(decision.answers)
    assert decision.wake_at_s > now_s
    declined = {job_id for job_id, answer in decision.answers.items() if answer.status is Status.DECLINED}
    assert all(decision.shares.get(job_id, snapshot.jobs[job_id].share) == 0 for job_id in declined)
    shares = {job_id: decision.shares.get(job_id, view.share) for job_id, view in snapshot.jobs.items()}
    assert sum(shares.values()) <= snapshot.cluster.total
    for job_id, share in decision.shares.items():
        assert share != snapshot.jobs[job_id].share, "a decision names only what changes"
        assert share == 0 or share in snapshot.jobs[job_id].job.curve.shares
        assert share == 0 or job_id not in declined
    return decision if decision.allocations else replace(decision, allocations=place(now_s, snapshot, decision))
