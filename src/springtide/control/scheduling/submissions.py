"""From a submission to the record of a job: names, deadlines, secrets, and what is refused before a policy is asked.

A user has limits: active jobs, and the device-seconds that may be outstanding. Outstanding is what is still planned for
a user's promised jobs and reserved offers, and the fewest that all their other jobs, best effort too, still need; it
comes back as jobs end. A job is measured by the fewest device-seconds on which it can be done.
"""

import hashlib
import json
import re
import secrets
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from springtide.control.clock import Clock
from springtide.control.scheduling.context import Context, ServerOptions
from springtide.control.scheduling.inventory import Inventory
from springtide.control.scheduling.live_jobs import (
    UNCOUNTED,
    JobFacts,
    list_device_types,
    list_shares,
    look_up,
    make_job,
)
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.speeds import make_key
from springtide.control.storage.records import JobRecord, UserRecord
from springtide.control.storage.staging import Staging
from springtide.control.storage.state_dir import StateDir, write_secrets
from springtide.control.storage.store import Store
from springtide.core.decisions import JobView, Plan
from springtide.core.durations import is_instant, parse_deadline, parse_span
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState
from springtide.core.jobs import Job
from springtide.errors import InputError, JobError
from springtide.executors.local.jobs.checkpoint_folder import CheckpointFolder

#: States in which work is still to be done, promised or not.
WORKING = frozenset({JobState.WAITLISTED, JobState.ADMITTED, JobState.RUNNING})


class LimitError(InputError):
    """A user has reached a limit; try again later."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What a user hands in: the job, the hash of its code, the values of its secrets, and from whom."""

    job: JobFile
    archive: str
    user: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    accept_offer: bool = False
    measure_only: bool = False  # for a plan; it ends when its speed is known
    key: str | None = None  # what its client calls it, so that it can be sent again without harm

    @property
    def content_hash(self) -> str:
        """A hash of what is asked for; the values of secrets are no part of it."""
        told = [self.job.model_dump(mode="json"), self.archive, self.accept_offer, self.measure_only]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason code and a sentence, where no policy needs to be asked."""

    reason: str
    sentence: str


def make_name(job: JobFile, script: str) -> str:
    """The name a job gives itself, or its script's name plus four letters."""
    if job.name is not None:
        return job.name
    stem = re.sub(r"[^a-z0-9-]+", "-", script.rsplit("/", 1)[-1].removesuffix(".py").lower()).strip("-")
    stem = stem if stem[:1].isalpha() else f"job-{stem}".rstrip("-")
    return f"{stem[:58]}-{''.join(secrets.choice(string.ascii_lowercase) for _ in range(4))}"


def resolve_deadline(text: str | None, now_s: float, clock: Clock) -> float | None:
    """The deadline in platform time: a span counts from now; an instant is shifted if the wall clock was set."""
    if text is None:
        return None
    if not is_instant(text):
        return now_s + parse_span(text, "deadline")
    wall_s = clock.source.wall_s()
    return now_s + parse_deadline(text, wall_s) - wall_s


def open_record(context: Context, submission: Submission) -> tuple[JobRecord, Refusal | None]:
    """The record of a new job within its user's limits, and why it is declined if no policy needs to be asked."""
    staging, user = context.staging, context.staging.store.find_user(submission.user)
    check_limits(staging, find_owner(submission, user), user, context.options, submission.job)
    record = make_record(context, submission, user)
    if submission.job.secrets:
        keep_secrets(context.state_dir, record, submission.secrets)
    return record, refuse(staging, context.world, record, user)


def find_owner(submission: Submission, user: UserRecord | None) -> str:
    """The id of who submits; where nobody is known by that name, the name."""
    return submission.user if user is None else user.id


def make_record(context: Context, submission: Submission, user: UserRecord | None) -> JobRecord:
    """The record of a new job, not yet answered, if its code is here and its budget can be counted."""
    job, now_s, script = submission.job, context.staging.now_s, submission.job.script
    check_code(script, submission.archive, context.state_dir)
    check_budget(job, context.options.price_per_device_hour)
    return JobRecord(
        id=name_job(submission, find_owner(submission, user), context.staging.store),
        name=make_name(job, script),
        user=submission.user,
        state=JobState.WAITLISTED,
        spec=job,
        submitted_s=now_s,
        settled_s=now_s,
        archive=submission.archive,
        speed_key=make_key(job, submission.archive, context.torch_version),
        deadline_s=resolve_deadline(job.deadline, now_s, context.clock),
        logical_workers=job.logical_workers,
        accept_offer=submission.accept_offer,
        measure_only=submission.measure_only,
        idempotency_key=submission.key,
        request_hash="" if submission.key is None else submission.content_hash,
        owner=find_owner(submission, user),
    )


def name_job(submission: Submission, owner: str, store: Store) -> str:
    """An id that nobody guesses and everybody can type; of a submission with a key always the same."""
    if submission.key is not None:
        keyed = name_keyed(owner, submission.key)
        if store.job(keyed) is None:
            return keyed
    return secrets.token_hex(4)


def name_keyed(owner: str, key: str) -> str:
    """The id of the job that the user of an id submits under a key."""
    return hashlib.sha256(f"{owner}\n{key}".encode()).hexdigest()[:8]


def find_repeated(staging: Staging, submission: Submission) -> JobRecord | None:
    """The job that this submission has made before: under the same key, by the same user."""
    if submission.key is None:
        return None
    same = (find_owner(submission, staging.store.find_user(submission.user)), submission.key)
    staged = (one for one in staging.batch.jobs.values() if (one.owner, one.idempotency_key) == same)
    return next(staged, None) or staging.store.find_request(*same)


def refuse(staging: Staging, world: PlatformWorld, record: JobRecord, user: UserRecord | None) -> Refusal | None:
    """Why a job is declined without asking a policy: nothing here could run it, or its user's quota is spent."""
    return refuse_early(record, world.inventory) or check_quota(staging, world, record, user)


def refuse_early(record: JobRecord, inventory: Inventory) -> Refusal | None:
    """What no policy could change: too many devices, the wrong type, an unknown duration of a rigid job."""
    job, workers, total = record.spec, record.logical_workers or UNCOUNTED, inventory.cluster.total
    if not job.shares(workers, total):
        return Refusal("exceeds_cluster", f"it asks for {job.devices} devices; there are {total}")
    allowed = inventory.device_types if job.device_types is None else list_device_types(record, inventory)
    if not allowed:
        wanted, here = " or ".join(job.device_types or ()), " and ".join(inventory.device_types)
        return Refusal("no_such_device", f"it asks for {wanted}; the devices here are {here}")
    if inventory.is_mixed and not list_shares(job, allowed, workers, inventory):
        there = ", ".join(f"{inventory.totals[device_type]} {device_type}" for device_type in allowed)
        sentence = f"it asks for {job.devices} devices of one type; of those it may use there are {there}"
        return Refusal("exceeds_cluster", sentence)
    if record.deadline_s is not None and not job.elastic and job.duration is None:
        sentence = "a job with elastic: false can be promised a finish only if it says how long it runs; add duration:"
        return Refusal("unknown_duration", sentence)
    return None


def check_limits(staging: Staging, owner: str, user: UserRecord | None, options: ServerOptions, job: JobFile) -> None:
    """Refuse a user who has too many active jobs, and a checkpoint folder that another of them uses."""
    jobs = staging.jobs
    most = options.most_active if user is None or user.most_active is None else user.most_active
    active = sum(record.owner == owner for record in jobs.values()) if len(jobs) >= most else 0
    if len(jobs) >= most and active >= most:
        name = owner if user is None else user.name
        raise LimitError(f"user {name} has {active} active jobs; the limit is {most}; wait for one to end")
    if job.checkpoint.dir is not None:
        check_folder(job.checkpoint.dir, staging.list_active())


def check_code(command: str, archive: str, state_dir: StateDir) -> None:
    """Refuse a job whose code was not uploaded, or whose script is not in it."""
    folder, script = state_dir.code / archive, PurePosixPath(command)
    if ".." in script.parts:
        raise JobError(f"script {str(script)!r} lies outside workdir; set workdir to a folder that holds it")
    is_inside = script.suffix == ".py" and not script.is_absolute()
    if is_inside and (folder / script).is_file():
        return
    if not folder.is_dir():
        raise JobError(f"archive {archive} is not here; upload it before submitting")
    if is_inside:
        raise JobError(f"script {str(script)!r} does not exist in workdir; check `run` and `workdir`")


def check_folder(wanted: str, active: Iterable[JobRecord]) -> None:
    """Refuse a checkpoint folder that another job uses now: each would go on from, and clear away, the other's."""
    for other in active:
        used = other.spec.checkpoint.dir
        if used is not None and PurePosixPath(used) == PurePosixPath(wanted):
            raise JobError(f"checkpoint.dir {wanted} is in use by job {other.name}; wait for its end or choose another")


def check_budget(job: JobFile, price: float | None) -> None:
    """Refuse a budget where nothing has a price."""
    if job.budget is not None and price is None:
        raise JobError(
            "budget needs a price: set price_per_device_hour in the server's server.yaml, or leave budget out"
        )


def keep_secrets(state_dir: StateDir, record: JobRecord, given: Mapping[str, str]) -> None:
    """Keep the values of a job's secrets until it ends; one that has none, now or from before, is an error."""
    names = record.spec.secrets
    missing = [name for name in names if name not in given]
    if missing and not state_dir.secrets_file(record.id).exists():
        raise JobError(f"secret {missing[0]} has no value; set it in the environment you submit or resume from")
    if not missing:
        write_secrets(state_dir, record.id, {name: given[name] for name in names})


def find_checkpoint(record: JobRecord, state_dir: StateDir) -> int:
    """The step from which a job would go on: that of its last checkpoint, which may have been removed since."""
    job = record.spec
    if not job.elastic:
        return 0
    folder = Path(job.checkpoint.dir) if job.checkpoint.dir is not None else state_dir.checkpoints(record.id)
    return max(0, CheckpointFolder(folder).seen)


def check_quota(staging: Staging, world: PlatformWorld, record: JobRecord, user: UserRecord | None) -> Refusal | None:
    """Why a job cannot be taken: it would exceed the device-seconds that its user may have outstanding.

    Nothing is said of jobs whose speed nobody knows yet; but while a user's quota is spent, they wait as well.
    """
    if user is None or user.quota_device_s is None:
        return None
    own = [view for view in world.jobs.values() if view.job.user == user.id and view.job.id != record.id]
    left = max(0.0, user.quota_device_s - sum(count_outstanding(staging, world.inventory, view) for view in own))
    facts = look_up(record, staging.speeds, world.inventory)
    if not is_known(record, facts):
        return None if left > 0 else Refusal("quota_exceeded", tell_spent(user.name, user.quota_device_s))
    job = make_job(record, facts, world.inventory)
    wanted = least_device_s(job, job.work - record.step)
    if wanted <= left:
        return None
    return Refusal(
        "quota_exceeded",
        f"it needs at least {wanted:.0f} device-seconds; of the quota of {user.quota_device_s:.0f}, "
        f"{left:.0f} are left for user {user.name}, which is enough for {most_work(job, left) / job.work:.0%} of it",
    )


def is_known(record: JobRecord, facts: JobFacts) -> bool:
    """Whether it is known how much work a job is, and how fast that is done."""
    return bool(facts.measured) and facts.steps is not None if record.spec.elastic else record.spec.duration is not None


def tell_spent(name: str, quota_device_s: float) -> str:
    """That nothing is left of a quota."""
    return f"the quota of {quota_device_s:.0f} device-seconds of user {name} is taken up by their other jobs"


def least_device_s(job: Job, work: float | None = None) -> float:
    """The fewest device-seconds on which a job, or so much of it, can be done."""
    left = job.work if work is None else work
    pairs = zip(job.curve.shares, job.curve.rates, strict=True)
    return min(share * (job.overhead.pause_s(share, starting=True) + left / rate) for share, rate in pairs)


def most_work(job: Job, device_s: float) -> float:
    """The most work that can be done on so many device-seconds."""
    pairs = zip(job.curve.shares, job.curve.rates, strict=True)
    return max(0.0, *(rate * (device_s / share - job.overhead.pause_s(share, starting=True)) for share, rate in pairs))


def count_outstanding(staging: Staging, inventory: Inventory, view: JobView) -> float:
    """Device-seconds still planned for a job, or the fewest on which what is left of it can be done.

    A job that nobody has measured counts from when it is; one that was declined, or is only measured, does not.
    """
    if view.promise is not None:
        return planned_device_s(view.promise.plan, staging.now_s)
    record = staging.jobs.get(view.job.id)
    if record is None or record.state not in WORKING:
        return 0.0
    if not is_known(record, look_up(record, staging.speeds, inventory)):
        return 0.0
    return least_device_s(view.job, view.progress.work_left_at(staging.now_s))


def planned_device_s(plan: Plan, now_s: float) -> float:
    """Device-seconds of a plan from now on."""
    ends = [*(segment.start_s for segment in plan.segments[1:]), plan.finish_s]
    return sum(
        segment.share * max(0.0, min(end_s, plan.finish_s) - max(segment.start_s, now_s))
        for segment, end_s in zip(plan.segments, ends, strict=True)
    )
