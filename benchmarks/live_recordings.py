"""Live workloads as they were recorded, and their replay in the simulator.

The policy of the replay believes what it believed live: the speeds and costs that plans counted on, as they stood at
each arrival, and what it remembered of earlier workloads. Jobs run as they ran: at the speeds that were measured, and
with the time that their own starts and changes of devices took. Nothing here runs a job; `live_workloads` does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from statistics import fmean, median
from typing import Any

from springtide.control.scheduling.live_jobs import plan_overhead
from springtide.control.scheduling.live_world import LiveWorld
from springtide.control.scheduling.speeds import expect_curve, plan_curve
from springtide.control.storage.records import EventRecord, SpeedRecord
from springtide.core.curves import Curve
from springtide.core.decisions import Decision, Progress, Snapshot
from springtide.core.devices import Cluster, NodeGroup
from springtide.core.jobs import Job, JobId, Overhead
from springtide.policies import decide, find_policy
from springtide.simulator.engine import Simulation
from springtide.simulator.reports import MetricsObserver, meets

DEVICES = 2
SHARES = (1, 2)
POLICY = "springtide"


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that a start and a change of devices cost a job; None where it had none.

    A start counts from the decision to the first step, and with what passed from the last step until the end was
    known. A change counts as the time in which the new devices would have done what was not done until they did it:
    while newcomers start, a job that grows runs on as before.
    """

    start_s: float | None = None
    change_s: float | None = None


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job that ran live: what was asked and known when it came, how fast it was, what became of it."""

    id: str
    submitted_s: float
    deadline_s: float | None
    steps: int
    believed: SpeedRecord
    measured: SpeedRecord
    state: str
    why: str
    promised: bool
    met: bool
    lost: bool
    rescales: int
    costs: Costs = Costs()
    #: Its events, each with the seconds since it was submitted: where a replay differs, they say what it does not know.
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """One live workload, with what the policy remembered before its first job came."""

    seed: int
    memory: dict[str, Any]
    jobs: tuple[RecordedJob, ...]
    outside_load: float
    took_s: float


def read_recordings(path: Path, seeds: Sequence[int]) -> list[Recording]:
    """The workloads in a file that have one of these seeds; a line that was cut short counts as missing."""
    lines = path.read_text().splitlines() if path.exists() else []
    recordings = [load_recording(json.loads(line)) for line in lines if line.endswith("}")]
    return [recording for recording in recordings if recording.seed in seeds]


def append_recording(path: Path, recording: Recording) -> None:
    """Add a workload to a file."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(recording)) + "\n")


def load_recording(data: dict[str, Any]) -> Recording:
    """A workload from its line."""
    return Recording(**{**data, "jobs": tuple(map(load_job, data["jobs"]))})


def load_job(data: dict[str, Any]) -> RecordedJob:
    """A job of a workload from its line."""
    speeds = {name: load_speed(data[name]) for name in ("believed", "measured")}
    return RecordedJob(**{**data, **speeds, "costs": Costs(**data["costs"]), "told": tuple(data["told"])})


def load_speed(data: dict[str, Any]) -> SpeedRecord:
    """A speed; JSON has made strings of the shares."""
    points = {int(share): (int(steps), float(rate)) for share, (steps, rate) in data["points"].items()}
    return SpeedRecord(**{**data, "points": points})


def measure_costs(events: Sequence[EventRecord], curve: Curve, steps: int) -> Costs:
    """What starts and changes cost a job that has ended well, by its events."""
    starts, changes = [], []
    asked_s: float | None = None  # when devices were given that are not in use yet
    begun_s, share, step = 0.0, 0, 0  # the stretch under way: since when, on how many devices, from which step
    for event in events:
        match event.kind:
            case "placed":
                asked_s, share = event.at_s, 0
            case "grows" | "shrinks" | "moves":
                asked_s = event.at_s if share else asked_s
            case "started" if asked_s is not None:
                starts.append(event.at_s - asked_s)
                asked_s = begun_s = event.at_s
                share, step = event.data["share"], event.data["step"]
            case "resized" if asked_s is not None:
                waited_s, pause_s = event.at_s - asked_s, event.data["pause_s"]
                done = curve.rate(share) * max(0.0, waited_s - pause_s)
                begun_s, share, step = event.at_s, event.data["share"], event.data["step"]
                changes.append(max(0.0, waited_s - done / curve.rate(share)))
            case "succeeded" if starts and share:
                tail_s = event.at_s - begun_s - (steps - step) / curve.rate(share)
                return Costs(fmean(starts) + max(0.0, tail_s) / len(starts), fmean(changes) if changes else None)
    return Costs()


def replay_recording(recording: Recording) -> frozenset[str]:
    """The jobs whose deadlines are met when the simulator replays a workload."""
    believed = {JobId(job.id): believe(job, index) for index, job in enumerate(recording.jobs)}
    usual = find_usual(recording)
    real = [realise(job, believed[JobId(job.id)], usual) for job in recording.jobs]
    seen, cluster = MetricsObserver(), Cluster((NodeGroup(1, DEVICES, "cpu"),))
    engine = Simulation(cluster, partial(decide_on_beliefs, believed, recording.memory), seen)
    engine.world = LiveWorld(cluster)
    engine.run(real)
    finishes_s = seen.finishes_s
    return frozenset(
        str(job.id) for job in real if not job.best_effort and job.id in finishes_s and meets(job, finishes_s[job.id])
    )


def believe(recorded: RecordedJob, index: int) -> Job:
    """A job as the policy saw it when it came."""
    return Job(
        JobId(recorded.id),
        index,
        recorded.submitted_s,
        float(recorded.steps),
        plan_curve(recorded.believed, SHARES),
        inf if recorded.deadline_s is None else recorded.deadline_s,
        overhead=plan_overhead({"cpu": recorded.believed}),
    )


def find_usual(recording: Recording) -> Costs:
    """What starts and changes cost the jobs of a workload, for those that had none."""
    starts = [job.costs.start_s for job in recording.jobs if job.costs.start_s is not None]
    changes = [job.costs.change_s for job in recording.jobs if job.costs.change_s is not None]
    return Costs(median(starts) if starts else None, median(changes) if changes else None)


def realise(recorded: RecordedJob, job: Job, usual: Costs) -> Job:
    """A job as it was: the speeds measured, and what a start and a change of devices cost it, or cost others."""
    speed, costs = recorded.measured, recorded.costs
    start_s = next(one for one in (costs.start_s, usual.start_s, speed.startup_s) if one is not None)
    change_s = next(one for one in (costs.change_s, usual.change_s, speed.pause_s or 0.0) if one is not None)
    overhead = Overhead(base_s=change_s, start_s=max(0.0, start_s - change_s))
    return replace(job, curve=expect_curve(speed, SHARES), overhead=overhead)


def decide_on_beliefs(
    believed: Mapping[JobId, Job], memory: Mapping[str, Any], now_s: float, snapshot: Snapshot
) -> Decision:
    """What the policy decides if it sees jobs as they were believed to be; how far they are, it sees as it is."""
    views = {}
    for job_id, view in snapshot.jobs.items():
        job = believed[job_id]
        left = view.progress.work_left_at(now_s)
        rate = job.curve.rate(view.share) if view.share else 0.0
        progress = Progress(left, rate, now_s, max(now_s, view.progress.paused_until_s))
        views[job_id] = replace(
            view, job=job, progress=progress, served=view.served_at(now_s), ran_s=view.ran_at(now_s)
        )
    remembered = {**memory, **snapshot.memory}
    return decide(find_policy(POLICY), now_s, replace(snapshot, jobs=views, memory=remembered, cache=None))


def tell_apart(recording: Recording, met: frozenset[str]) -> list[str]:
    """A line for each deadline that was met live and not in the replay, or the other way round."""
    return [
        f"seed {recording.seed}, job {number} ({job.steps} steps): {'met' if job.met else job.state} live "
        f"({job.why}), {'met' if job.id in met else 'not met'} in the replay"
        for number, job in enumerate(recording.jobs, start=1)
        if job.deadline_s is not None and job.met != (job.id in met)
    ]
