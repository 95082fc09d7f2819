"""From a submission to a job that policies can decide on: names, deadlines, speeds, and what is refused beforehand."""

import re
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from springtide.control import speeds
from springtide.control.clock import Clock
from springtide.control.durations import LONGEST_S, is_instant, parse_instant, parse_span, show_instant
from springtide.control.jobfile import JobFile
from springtide.control.records import JobRecord, SpeedRecord, State
from springtide.control.sites import Site
from springtide.core.curves import Curve
from springtide.core.jobs import Job, JobId, Overhead
from springtide.errors import JobError

PROBE_PREFIX = "probe."
# Probes go before every best-effort job; a job that missed its promise comes next.
PROBE_PRIORITY = 1_000_002
MISSED_PRIORITY = 1_000_001
PROBE_START_S = 10.0
RIGID_GUESS_S = 3600.0


@dataclass(frozen=True, slots=True)
class Submission:
    """What a user hands in: the job, the hash of its code, the values of its secrets, and from whom."""

    job: JobFile
    archive: str
    user: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    accept_offer: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason code and a sentence, where no policy needs to be asked."""

    reason: str
    sentence: str


def make_id() -> str:
    """A job id that nobody guesses and everybody can type."""
    return secrets.token_hex(4)


def make_name(job: JobFile) -> str:
    """The name a job gives itself, or its script's name plus four letters."""
    if job.name is not None:
        return job.name
    stem = re.sub(r"[^a-z0-9-]+", "-", job.script.rsplit("/", 1)[-1].removesuffix(".py").lower()).strip("-")
    stem = stem if stem[:1].isalpha() else f"job-{stem}".rstrip("-")
    return f"{stem[:58]}-{''.join(secrets.choice(string.ascii_lowercase) for _ in range(4))}"


def resolve_deadline(text: str | None, clock: Clock) -> float | None:
    """The deadline in platform time: a span counts from now; an instant is shifted if the wall clock was set."""
    if text is None:
        return None
    now_s, wall_s = clock.now_s(), clock.source.wall_s()
    if not is_instant(text):
        return now_s + parse_span(text, "deadline")
    ahead_s = parse_instant(text, "deadline").timestamp() - wall_s
    if ahead_s <= 0:
        raise JobError(f"deadline {text!r} is in the past; it is now {show_instant(wall_s)}")
    if ahead_s > LONGEST_S:
        raise JobError(f"deadline {text!r} is more than ten years ahead; leave it out for best effort")
    return now_s + ahead_s


def make_record(submission: Submission, site: Site, clock: Clock, torch_version: str) -> JobRecord:
    """The record of a new job, not yet answered."""
    job = submission.job
    return JobRecord(
        id=make_id(),
        name=make_name(job),
        user=submission.user,
        state=State.WAITLISTED,
        spec=job.model_dump(mode="json", exclude_defaults=True),
        submitted_s=clock.now_s(),
        settled_s=clock.now_s(),
        archive=submission.archive,
        speed_key=speeds.make_key(job, submission.archive, site.device_type, torch_version),
        deadline_s=resolve_deadline(job.deadline, clock),
        logical_workers=job.logical_workers,
    )


def refuse_early(record: JobRecord, job: JobFile, site: Site) -> Refusal | None:
    """What no policy could change: too many devices, the wrong type, an unknown duration of a rigid job."""
    if not job.shares(find_workers(record, None), site.cluster.total):
        fewest = job.devices if isinstance(job.devices, int) else str(job.devices)
        return Refusal("exceeds_cluster", f"it asks for {fewest} devices; there are {site.cluster.total}")
    if job.device_types is not None and site.device_type not in {kind.lower() for kind in job.device_types}:
        wanted = " or ".join(job.device_types)
        return Refusal("no_such_device", f"it asks for {wanted}; the devices here are {site.device_type}")
    if record.deadline_s is not None and not job.elastic and job.duration_s is None:
        return Refusal(
            "unknown_duration",
            "a job with elastic: false can be promised a finish only if it says how long it runs; add duration:",
        )
    return None


def find_workers(record: JobRecord, speed: SpeedRecord | None) -> int:
    """Logical workers by the job file, by the script, or as many as anyone could want."""
    told = record.logical_workers or (speed.logical_workers if speed is not None else None)
    return told or 1 << 16


def count_steps(record: JobRecord, job: JobFile, speed: SpeedRecord | None) -> int | None:
    """The total work of a job, as far as anybody knows."""
    total = record.total_steps or (speed.total_steps if speed is not None else None)
    if job.steps is None:
        return total
    return job.steps if total is None else min(job.steps, total)


def make_job(record: JobRecord, speed: SpeedRecord | None, site: Site) -> Job:
    """The job as policies see it: at the speeds that a promise may count on."""
    job = JobFile.model_validate(record.spec)
    shares = job.shares(find_workers(record, speed), site.cluster.total) or (1,)
    if not job.elastic:
        work, curve = job.duration_s or RIGID_GUESS_S, Curve(shares[-1:], (1.0,))
    elif speed is not None and speed.points:
        work, curve = float(count_steps(record, job, speed) or speeds.GUESSED_STEPS), speeds.plan_curve(speed, shares)
    else:
        work, curve = float(count_steps(record, job, speed) or speeds.GUESSED_STEPS), speeds.guess_curve(shares)
    overhead = speeds.plan_overhead(speed)
    unplanned = record.promised and record.plan is None  # missed, or in danger since devices were lost
    if unplanned or record.missed or record.deadline_s is None:
        deadline_s, priority = inf, MISSED_PRIORITY if unplanned or record.missed else job.priority
    else:
        deadline_s, priority = record.deadline_s, 0
    return Job(
        JobId(record.id),
        record.seq,
        record.submitted_s,
        work,
        curve,
        deadline_s,
        requested=shares[0],
        overhead=overhead,
        user=record.user,
        priority=priority,
    )


def make_probe_job(record: JobRecord, share: int | None = None) -> Job:
    """A probe as a small best-effort job: at most start-up and fifteen seconds, on one or two devices."""
    curve = Curve((1, 2), (1.0, 1.01)) if share is None else Curve((share,), (1.0,))
    return Job(
        JobId(PROBE_PREFIX + record.id),
        record.seq,
        record.submitted_s,
        15.0,
        curve,
        overhead=Overhead(start_s=PROBE_START_S),
        user=record.user,
        priority=PROBE_PRIORITY,
    )


def fix_share(job: Job, share: int) -> Job:
    """A probe that has started: it keeps its devices or loses them all."""
    return replace(job, curve=Curve((share,), (1.0,)))
