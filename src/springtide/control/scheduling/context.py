"""All that the parts of the reconciler share: the book, the world, the devices, the clock and the options.

Also the two things every part does: bring a record in line with the world, and rebuild a job when more is known of it.
"""

from dataclasses import dataclass, field, replace
from math import inf, isclose

from springtide.control.clock import Clock
from springtide.control.scheduling import device_types, speeds, submissions
from springtide.control.scheduling.inventory import Inventory
from springtide.control.scheduling.live_world import LiveWorld, find_rate, predict_finish
from springtide.control.storage.records import JobRecord, SpeedRecord
from springtide.control.storage.staging import Staging
from springtide.control.storage.state_dir import StateDir
from springtide.core.curves import Curve
from springtide.core.decisions import JobView
from springtide.core.jobs import Job, JobId

SAME = 0.05  # speeds this close are the same: no plan is made anew for less


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server behaves; from its command line and `server.yaml`."""

    policy: str = "springtide"
    price_per_device_hour: float | None = None
    archive_limit_bytes: int = 100_000_000
    most_active: int = 1000
    rate_per_s: float = 10.0
    burst: int = 50
    keep_days: float = 90.0
    #: Where a declined job could rent: names joined by commas, or none.
    clouds: str = "aws,azure,gcp"
    nodes: int = 1  # that this machine's devices are cut into, so that a part of them can be drained


@dataclass(slots=True)
class Context:
    """The state of a running control plane. Touched by the reconciler's thread only."""

    book: Staging
    world: LiveWorld
    site: Inventory
    home: StateDir
    clock: Clock
    options: ServerOptions
    torch_version: str = field(default_factory=speeds.find_torch_version)

    def find_run_as(self, user: str) -> str | None:
        """The system user that a user's jobs run as; None: the server's own."""
        return next((one.run_as for one in self.book.store.users() if one.name == user), None)

    def view(self, job_id: str) -> JobView | None:
        """Where the world sees a job, or the probe that stands for it."""
        found = self.world.jobs.get(JobId(job_id))
        return found if found is not None else self.world.jobs.get(JobId(submissions.PROBE_PREFIX + job_id))

    def known(self, record: JobRecord) -> dict[str, SpeedRecord]:
        """What is known of a job's speed on the device types it may use; types of which nothing is are left out."""
        allowed = device_types.list_device_types(record, self.site)
        found = {
            device_type: self.book.speed(speeds.name_key(record.speed_key, device_type)) for device_type in allowed
        }
        return {device_type: speed for device_type, speed in found.items() if speed is not None}

    def speed(self, record: JobRecord) -> SpeedRecord:
        """What is known of a job's speed on the devices it holds (if they are of several types, on the first)."""
        device_type = next(
            iter(self.site.count_types(record.devices)), record.first_device_type or self.site.device_types[0]
        )
        key = speeds.name_key(record.speed_key, device_type)
        known = self.book.speed(key)
        return known if known is not None else SpeedRecord(key, device_type=device_type)

    def build_job(self, record: JobRecord) -> Job:
        """The job as policies see it, with what is known now."""
        return submissions.make_job(record, self.known(record), self.site)

    def refresh(self, job_id: str) -> bool:
        """Rebuild a job from what is known now; returns whether that changes anything worth a decision."""
        view = self.world.jobs.get(JobId(job_id))
        if view is None:
            return False
        job = self.build_job(self.book.jobs[job_id])
        old = view.job
        if is_same(old, job):
            return False
        if view.share and not find_rate(job, view.share, view.mix):
            job = replace(job, curve=old.curve, typed=old.typed)  # it holds what is no longer wanted: let it end there
        self.world.revise(job, self.clock.now_s())
        return True

    def expect(self, record: JobRecord, view: JobView) -> tuple[float, dict[int, float]]:
        """Expected steps per second on what a job holds, and by share of what its plan holds ready.

        That is what was seen, not what a plan dares to count on.
        """
        known, typed = self.known(record), view.job.typed
        if typed is None:
            (speed,) = known.values() or (None,)
            rates = device_types.expect_rates(speed, view.job.curve)
            return rates.get(view.share, 0.0), rates
        held = device_types.expect_mix(known, typed, view.mix or {})
        planned = view.promise.device_type if view.promise is not None else ""
        if planned not in typed.curves:  # a block of several types, held to the end
            return held, {view.share: held}
        return held, device_types.expect_rates(known.get(planned), typed.curves[planned])

    def predict(self, job_id: str) -> float | None:
        """When a job is expected to end, or None while nobody can say."""
        view, record = self.world.jobs.get(JobId(job_id)), self.book.jobs[job_id]
        if view is None or record.total_steps is None:
            return None
        finish_s = predict_finish(view, *self.expect(record, view), self.clock.now_s())
        return None if finish_s == inf else finish_s

    def settle(self, job_id: str, view: JobView) -> None:
        """Copy what a job has used up to now into its record."""
        now_s = self.clock.now_s()
        self.book.change(job_id, served=view.served_at(now_s), ran_s=view.ran_at(now_s), settled_s=now_s)


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
    blended = "+" if job.typed is not None and job.typed.blend is not None else ""
    return (
        {"": job.curve}
        if job.typed is None
        else {device_type + blended: c for device_type, c in job.typed.curves.items()}
    )


def is_same_curve(old: Curve, new: Curve) -> bool:
    """Whether two curves differ too little to plan anew."""
    pairs = zip(old.rates, new.rates, strict=False)
    return old.shares == new.shares and all(isclose(a, b, rel_tol=SAME) for a, b in pairs)
