"""What the parts of the reconciler share: staged records, the world, devices, the time of the step, options.

Also what every part asks: what is known of a job's speed, the job as policies see it, and when it is expected to end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import isclose
from typing import TypeAlias

from springtide.control.clock import Clock
from springtide.control.scheduling.inventory import Inventory
from springtide.control.scheduling.live_jobs import JobFacts, find_held, look_up, make_job, predict
from springtide.control.scheduling.live_world import LiveWorld, find_rate
from springtide.control.scheduling.speeds import find_torch_version
from springtide.control.storage.records import JobRecord, SpeedRecord
from springtide.control.storage.staging import Staging
from springtide.control.storage.state_dir import StateDir
from springtide.core.curves import Curve
from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.jobs import Job, JobId, Purpose

SAME = 0.05  # speeds this close are the same: no plan is made anew for less

#: A policy as the reconciler asks it: placed and checked.
Decide: TypeAlias = Callable[[float, Snapshot], Decision]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server behaves; from its command line and `server.yaml`."""

    policy: str = "springtide"
    price_per_device_hour: float | None = None
    archive_limit_bytes: int = 100_000_000
    most_active: int = 1000
    #: Changes per second and user, and at once; the same of reading.
    rate_per_s: float = 10.0
    burst: int = 50
    reads_per_s: float = 100.0
    read_burst: int = 300
    most_connections: int = 512
    keep_days: float = 90.0
    #: Where a declined job could rent: names joined by commas, or none.
    clouds: str = "aws,azure,gcp"
    nodes: int = 1  # that this machine's devices are cut into, so that a part of them can be drained


@dataclass(slots=True)
class Context:
    """The state of a running control plane. Touched by the reconciler's thread only.

    `now_s` is the platform time of the present step: the clock is read once for each.
    """

    staging: Staging
    world: LiveWorld
    inventory: Inventory
    state_dir: StateDir
    clock: Clock
    options: ServerOptions
    now_s: float
    torch_version: str = field(default_factory=find_torch_version)

    def find_facts(self, record: JobRecord) -> JobFacts:
        """What is known of a job's speed, work and logical workers."""
        return look_up(record, self.staging.speeds[record.speed_key], self.inventory)

    def find_held_speed(self, record: JobRecord) -> SpeedRecord:
        """What is known of a job's speed on the devices it holds."""
        return find_held(record, self.staging.speeds[record.speed_key], self.inventory)

    def build_job(self, record: JobRecord) -> Job:
        """The job as policies see it, with what is known now."""
        return make_job(record, self.find_facts(record), self.inventory)

    def refresh(self, job_id: str) -> bool:
        """Rebuild a job from what is known now; returns whether that changes anything worth a decision."""
        view = self.world.jobs.get(JobId(job_id))
        if view is None or view.job.purpose is Purpose.PROBE:
            return False
        job = self.build_job(self.staging.jobs[job_id])
        old = view.job
        if is_same(old, job):
            return False
        if view.share and not find_rate(job, view.share, view.mix):
            job = replace(job, curve=old.curve, typed=old.typed)  # it holds what is no longer wanted: let it end there
        self.world.revise(job, self.now_s)
        return True

    def predict(self, record: JobRecord, view: JobView | None) -> float | None:
        """When a job is expected to end, or None while nobody can say."""
        return None if view is None else predict(record, view, self.find_facts(record), self.now_s)


def is_same(old: Job, new: Job) -> bool:
    """Whether two accounts of a job differ too little to plan anew."""
    before, after = list_curves(old), list_curves(new)
    return (
        before.keys() == after.keys()
        and all(is_same_curve(curve, after[device_type]) for device_type, curve in before.items())
        and old.deadline_s == new.deadline_s
        and old.priority == new.priority
        and isclose(old.work, new.work, rel_tol=1e-9)
        and isclose(old.overhead.start_s, new.overhead.start_s, rel_tol=0.5, abs_tol=1.0)
        and isclose(old.overhead.base_s, new.overhead.base_s, rel_tol=0.5, abs_tol=0.2)
    )


def list_curves(job: Job) -> dict[str, Curve]:
    """The speeds of a job by type; under no name where there is one type."""
    if job.typed is None:
        return {"": job.curve}
    blended = "+" if job.typed.blend is not None else ""
    return {device_type + blended: curve for device_type, curve in job.typed.curves.items()}


def is_same_curve(old: Curve, new: Curve) -> bool:
    """Whether two curves differ too little to plan anew."""
    pairs = zip(old.rates, new.rates, strict=False)
    return old.shares == new.shares and all(isclose(a, b, rel_tol=SAME) for a, b in pairs)
