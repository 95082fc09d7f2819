"""From a submission to the record of a job: names, deadlines, secrets, and what is refused before a policy is asked."""

import re
import secrets
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from springtide.control.clock import Clock
from springtide.control.scheduling import speeds
from springtide.control.scheduling.context import Context
from springtide.control.scheduling.inventory import Inventory
from springtide.control.scheduling.live_world import find_workers
from springtide.control.scheduling.quotas import Refusal, check_active, check_quota
from springtide.control.storage.records import JobRecord, State
from springtide.control.storage.state_dir import StateDir, write_secrets
from springtide.core.durations import LONGEST_S, is_instant, parse_instant, parse_span, show_instant
from springtide.core.job_file import JobFile
from springtide.errors import InputError, JobError
from springtide.executors.local.jobs.checkpoint_folder import CheckpointFolder


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


def make_name(job: JobFile) -> str:
    """The name a job gives itself, or its script's name plus four letters."""
    if job.name is not None:
        return job.name
    stem = re.sub(r"[^a-z0-9-]+", "-", job.script.rsplit("/", 1)[-1].removesuffix(".py").lower()).strip("-")
    stem = stem if stem[:1].isalpha() else f"job-{stem}".rstrip("-")
    return f"{stem[:58]}-{''.join(secrets.choice(string.ascii_lowercase) for _ in range(4))}"


def resolve_deadline(text: str | None, now_s: float, clock: Clock) -> float | None:
    """The deadline in platform time: a span counts from now; an instant is shifted if the wall clock was set."""
    if text is None:
        return None
    if not is_instant(text):
        return now_s + parse_span(text, "deadline")
    wall_s = clock.source.wall_s()
    ahead_s = parse_instant(text, "deadline").timestamp() - wall_s
    if ahead_s <= 0:
        raise JobError(f"deadline {text!r} is in the past; it is now {show_instant(wall_s)}")
    if ahead_s > LONGEST_S:
        raise JobError(f"deadline {text!r} is more than ten years ahead; leave it out for best effort")
    return now_s + ahead_s


def make_record(context: Context, submission: Submission) -> JobRecord:
    """The record of a new job, not yet answered, if its code is here and its budget can be counted."""
    job, now_s = submission.job, context.now_s
    check_code(job, submission.archive, context.state_dir)
    check_budget(job, context.options.price_per_device_hour)
    return JobRecord(
        id=secrets.token_hex(4),  # nobody guesses it and everybody can type it
        name=make_name(job),
        user=submission.user,
        state=State.WAITLISTED,
        spec=job,
        submitted_s=now_s,
        settled_s=now_s,
        archive=submission.archive,
        speed_key=speeds.make_key(job, submission.archive, context.torch_version),
        deadline_s=resolve_deadline(job.deadline, now_s, context.clock),
        logical_workers=job.logical_workers,
        accept_offer=submission.accept_offer,
        measure_only=submission.measure_only,
    )


def refuse(context: Context, record: JobRecord) -> Refusal | None:
    """Why a job is declined without asking a policy: nothing here could run it, or its user's quota is spent."""
    return refuse_early(record, context.inventory) or check_quota(context, record)


def refuse_early(record: JobRecord, inventory: Inventory) -> Refusal | None:
    """What no policy could change: too many devices, the wrong type, an unknown duration of a rigid job."""
    job, workers, total = record.spec, find_workers(record, {}), inventory.cluster.total
    if not job.shares(workers, total):
        return Refusal("exceeds_cluster", f"it asks for {job.devices} devices; there are {total}")
    allowed = speeds.list_device_types(record, inventory)
    if not allowed:
        wanted, here = " or ".join(job.device_types or ()), " and ".join(inventory.device_types)
        return Refusal("no_such_device", f"it asks for {wanted}; the devices here are {here}")
    if inventory.is_mixed and not speeds.list_shares(job, allowed, workers, inventory):
        there = ", ".join(f"{inventory.totals[device_type]} {device_type}" for device_type in allowed)
        sentence = f"it asks for {job.devices} devices of one type; of those it may use there are {there}"
        return Refusal("exceeds_cluster", sentence)
    if record.deadline_s is not None and not job.elastic and job.duration is None:
        sentence = "a job with elastic: false can be promised a finish only if it says how long it runs; add duration:"
        return Refusal("unknown_duration", sentence)
    return None


def check_limits(context: Context, user: str, job: JobFile) -> None:
    """Refuse a user who has too many active jobs, and a checkpoint folder that another of them uses."""
    refusal = check_active(context, user)
    if refusal:
        raise LimitError(refusal)
    if job.checkpoint.dir is not None:
        check_folder(job.checkpoint.dir, context.staging.list_active())


def check_code(job: JobFile, archive: str, state_dir: StateDir) -> None:
    """Refuse a job whose code was not uploaded, or whose script is not in it."""
    folder, script = state_dir.code / archive, PurePosixPath(job.script)
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


def keep_secrets(context: Context, record: JobRecord, given: Mapping[str, str]) -> None:
    """Keep the values of a job's secrets until it ends; one that has none, now or from before, is an error."""
    names = record.spec.secrets
    missing = [name for name in names if name not in given]
    if missing and not context.state_dir.secrets_file(record.id).exists():
        raise JobError(f"secret {missing[0]} has no value; set it in the environment you submit or resume from")
    if names and not missing:
        own = {name: given[name] for name in names}
        write_secrets(context.state_dir, record.id, own, context.find_run_as(record.user))


def find_checkpoint(record: JobRecord, state_dir: StateDir) -> int:
    """The step from which a job would go on: that of its last checkpoint, which may have been removed since."""
    job = record.spec
    if not job.elastic:
        return 0
    folder = Path(job.checkpoint.dir) if job.checkpoint.dir is not None else state_dir.checkpoints(record.id)
    return max(0, CheckpointFolder(folder).seen)
