"""From a submission to a job that policies can decide on: names, deadlines, speeds, and what is refused beforehand."""

import re
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from springtide.control.clock import Clock
from springtide.control.scheduling import device_types, speeds
from springtide.control.scheduling.inventory import Inventory
from springtide.control.scheduling.speeds import Known
from springtide.control.storage.records import JobRecord, State
from springtide.core.curves import Curve
from springtide.core.durations import LONGEST_S, is_instant, parse_instant, parse_span, show_instant
from springtide.core.job_file import JobFile
from springtide.core.jobs import Job, JobId, Overhead
from springtide.core.typed_curves import Mix, TypedCurves
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


def make_record(submission: Submission, clock: Clock, torch_version: str) -> JobRecord:
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
        speed_key=speeds.make_key(job, submission.archive, torch_version),
        deadline_s=resolve_deadline(job.deadline, clock),
        logical_workers=job.logical_workers,
    )


def refuse_early(record: JobRecord, job: JobFile, site: Inventory) -> Refusal | None:
    """What no policy could change: too many devices, the wrong type, an unknown duration of a rigid job."""
    if not job.shares(find_workers(record, {}), site.cluster.total):
        return Refusal("exceeds_cluster", f"it asks for {job.devices} devices; there are {site.cluster.total}")
    allowed = device_types.list_device_types(record, site)
    if not allowed:
        wanted = " or ".join(job.device_types or ())
        return Refusal(
            "no_such_device", f"it asks for {wanted}; the devices here are {' and '.join(site.device_types)}"
        )
    if not device_types.list_shares(job, allowed, find_workers(record, {}), site):
        there = ", ".join(f"{site.totals[device_type]} {device_type}" for device_type in allowed)
        sentence = f"it asks for {job.devices} devices of one type; of those it may use there are {there}"
        return Refusal("exceeds_cluster", sentence)
    if record.deadline_s is not None and not job.elastic and job.duration_s is None:
        return Refusal(
            "unknown_duration",
            "a job with elastic: false can be promised a finish only if it says how long it runs; add duration:",
        )
    return None


def find_workers(record: JobRecord, known: Known) -> int:
    """Logical workers by the job file, by the script, or as many as anyone could want."""
    return record.logical_workers or speeds.find_workers(known) or speeds.UNCOUNTED


def count_steps(record: JobRecord, job: JobFile, known: Known) -> int | None:
    """The total work of a job, as far as anybody knows."""
    total = record.total_steps or speeds.find_total(known)
    if job.steps is None:
        return total
    return job.steps if total is None else min(job.steps, total)


def make_job(record: JobRecord, known: Known, site: Inventory) -> Job:
    """The job as policies see it: at the speeds that a promise may count on."""
    job = JobFile.model_validate(record.spec)
    workers = find_workers(record, known)
    if site.is_mixed:
        typed = device_types.type_job(record, job, known, workers, site, promised=record.deadline_s is not None)
        curve = typed.curves[typed.fastest]
    else:
        shares = {device_type: job.shares(workers, site.cluster.total) or (1,) for device_type in site.device_types}
        typed, (curve,) = None, device_types.find_curves(job, shares, known, promised=True).values()
    work = float(count_steps(record, job, known) or speeds.GUESSED_STEPS)
    is_late = record.endangered or bool(record.missed)
    if is_late or record.deadline_s is None:
        deadline_s, priority = inf, MISSED_PRIORITY if is_late else job.priority
    else:
        deadline_s, priority = record.deadline_s, 0
    return Job(
        JobId(record.id),
        record.seq,
        record.submitted_s,
        work if job.elastic else job.duration_s or RIGID_GUESS_S,
        curve,
        deadline_s,
        requested=curve.shares[0],
        overhead=speeds.plan_overhead(known),
        user=record.user,
        priority=priority,
        typed=typed,
    )


def make_probe_job(record: JobRecord, site: Inventory, where: Sequence[str]) -> Job:
    """A probe as a small best-effort job on one of these types: at most start-up and fifteen seconds, on one or two."""
    curves = {device_type: Curve((1, 2), (1.0, 1.01)).capped(site.totals[device_type]) for device_type in where}
    return Job(
        JobId(PROBE_PREFIX + record.id),
        record.seq,
        record.submitted_s,
        15.0,
        next(iter(curves.values())),
        overhead=Overhead(start_s=PROBE_START_S),
        user=record.user,
        priority=PROBE_PRIORITY,
        typed=TypedCurves(curves) if site.is_mixed else None,
    )


def fix_share(job: Job, mix: Mix) -> Job:
    """A probe that has started: it keeps its devices, all of one type, or loses them all."""
    ((device_type, share),) = mix.items()
    curve = Curve((share,), (1.0,))
    return replace(job, curve=curve, typed=None if job.typed is None else TypedCurves({device_type: curve}))
