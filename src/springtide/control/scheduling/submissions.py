"""From a submission to the record of a job: names, deadlines, secrets, and what is refused before a policy is asked.

What may be outstanding of a user, and what a job may cost, is in `means`.
"""

import hashlib
import json
import re
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from springtide.control.clock import Clock
from springtide.control.code_versions import name_code
from springtide.control.scheduling.live_jobs import UNCOUNTED, list_device_types, list_shares
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.loop.calls import UNDONE
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.means import Refusal, check_means
from springtide.control.scheduling.server_context import Context, ServerOptions
from springtide.control.scheduling.speeds import make_key
from springtide.control.storage.places.checkpoint_places import find_folder, find_url
from springtide.control.storage.places.folder_claims import check_folder
from springtide.control.storage.records import ArrayPlace, AwaitedJob, JobRecord, UserRecord
from springtide.control.storage.staging import Staging
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.dependencies import Dependency
from springtide.core.durations import is_instant, parse_deadline, parse_span
from springtide.core.job_file import JobFile
from springtide.core.job_file_parts.sweeps import expand_sweep, name_swept
from springtide.core.job_states import JobState
from springtide.core.sizes import parse_size
from springtide.errors import JobError, LimitError, RemovedUserError, UnavailableError
from springtide.executors.local.jobs.checkpoint_folder import CheckpointFolder


@dataclass(frozen=True, slots=True)
class Submission:
    """What a user hands in: the job, the hash of its code, the values of its secrets, and from whom.

    The name is for people, and may be another user's by the time it is worked in; `owner` is the id.
    """

    job: JobFile
    archive: str
    user: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    accept_offer: bool = False
    measure_only: bool = False  # for a plan; it ends when its speed is known
    key: str | None = None  # what its client calls it, so that it can be sent again without harm
    place: ArrayPlace | None = None  # in the array of a sweep
    owner: str = ""  # empty: known by name only, as where nobody has a token

    @property
    def content_hash(self) -> str:
        """A hash of what is asked for; the values of secrets are no part of it."""
        told = [self.job.model_dump(mode="json"), self.archive, self.accept_offer, self.measure_only]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


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
    staging, user = context.staging, find_submitter(context.staging.store, submission)
    check_limits(staging, name_owner(submission, user), user, context.options, submission.job)
    record = make_record(context, submission, user)
    if submission.job.secrets:
        stage_secrets(context, record, submission.secrets)
    return record, refuse(staging, context.world, record, user)


def find_submitter(store: Store, submission: Submission) -> UserRecord | None:
    """Who submits, as they are now; None only where there are no users: else their job would be the server's own.

    Since the token was checked, a slow upload may have passed, and an admin may have removed the user.
    """
    user = store.find_owner(submission.owner) if submission.owner else store.find_user(submission.user)
    if user is None and (submission.owner or store.users()):
        raise RemovedUserError(
            f"user {submission.user} was removed while the request was on its way; nothing was done; ask an admin"
        )
    return user


def name_owner(submission: Submission, user: UserRecord | None) -> str:
    """The id of who submits; where nobody has one, the name."""
    return submission.user if user is None else user.id


def make_record(context: Context, submission: Submission, user: UserRecord | None) -> JobRecord:
    """The record of a new job, not yet answered, if its code is here and its budget can be counted."""
    job = hold_to_memory(submission.job, context.options.most_memory)
    now_s, script = context.staging.now_s, job.script
    check_code(script, submission.archive, context.state_dir)
    check_mail(job, bool(context.options.smtp))
    check_budget(job, context.options.price_per_device_hour is not None or bool(context.options.prices))
    owner, code = name_owner(submission, user), context.state_dir.code / submission.archive
    awaited = tuple(find_awaited(context.staging, one, job.name, owner, user) for one in job.dependencies)
    # a span counts from when it may go
    due = None if awaited and not is_instant(job.deadline or "") else job.deadline
    return JobRecord(
        id=name_job(context, submission, owner),
        name=make_name(job, script),
        user=submission.user,
        state=JobState.WAITLISTED,
        spec=job,
        submitted_s=now_s,
        seq=context.staging.next_seq,
        settled_s=now_s,
        archive=submission.archive,
        speed_key=make_key(job, name_code(job, owner, code), context.torch_version),
        deadline_s=resolve_deadline(due, now_s, context.clock),
        logical_workers=job.logical_workers,
        accept_offer=submission.accept_offer,
        measure_only=submission.measure_only,
        idempotency_key=submission.key,
        request_hash="" if submission.key is None else submission.content_hash,
        owner=owner,
        project="" if user is None else user.project,
        waits_for=awaited,
        array_place=submission.place,
    )


def find_awaited(
    staging: Staging, dependency: Dependency, name: str | None, owner: str, user: UserRecord | None
) -> AwaitedJob:
    """The job that another one of this name waits for, of those that its owner may see."""
    if dependency.job == name:
        raise JobError(f"after names {name!r}, the job itself; give the id of the other, or another name")
    staged = [one for one in staging.batch.jobs.values() if dependency.job in (one.id, one.name) and one.owner == owner]
    stored = staging.store.find_jobs(dependency.job, None if user is not None and user.admin else owner)
    found = staged or stored
    if not found:
        raise JobError(f"after names {dependency.job!r}, and there is no such job; submit that one first")
    if len({one.name for one in found}) > 1:
        names = ", ".join(f"{one.name} ({one.id})" for one in found[:5])
        raise JobError(f"after names {dependency.job!r}, which stands for several jobs: {names}; give the id")
    newest = max(found, key=lambda one: (one.active, one.seq))
    return AwaitedJob(newest.id, newest.name, dependency.end)


def name_job(context: Context, submission: Submission, owner: str) -> str:
    """An id that nobody guesses, everybody can type and no job has; of a submission with a key always the same.

    Whether a stored job has one that was drawn shows when it is stored, which fails then: the step is taken again, and
    another one is drawn.
    """
    staging = context.staging
    if submission.key is not None:
        keyed = name_keyed(owner, submission.key)
        if keyed not in staging.jobs and not staging.store.knows(keyed):
            return keyed
    while True:
        drawn = secrets.token_hex(4)
        if drawn not in staging.jobs and not context.state_dir.job_folder(drawn).exists():
            return drawn


def name_keyed(owner: str, key: str) -> str:
    """The id of the job that the user of an id submits under a key."""
    return hashlib.sha256(f"{owner}\n{key}".encode()).hexdigest()[:8]


def name_keyed_array(owner: str, key: str) -> str:
    """The id of the array that the user of an id submits under a key."""
    return name_keyed(owner, f"{key}.array")


def find_repeated(staging: Staging, submission: Submission) -> JobRecord | None:
    """The job that this submission has made before: under the same key, by the same user."""
    if submission.key is None:
        return None
    same = (name_owner(submission, find_submitter(staging.store, submission)), submission.key)
    staged = (one for one in staging.batch.jobs.values() if (one.owner, one.idempotency_key) == same)
    return next(staged, None) or staging.store.find_request(*same)


def refuse(staging: Staging, world: PlatformWorld, record: JobRecord, user: UserRecord | None) -> Refusal | None:
    """Why a job is declined without asking a policy: nothing here could run it, or it costs more than it may."""
    return refuse_early(record, world.inventory) or check_means(staging, world, record, user)


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
    check_project(staging, user)
    check_folder(job, owner, staging)


def check_project(staging: Staging, user: UserRecord | None) -> None:
    """Refuse a user whose project has too many active jobs."""
    project = staging.store.find_project(user.project) if user is not None and user.project else None
    if project is None or project.most_active is None:
        return
    active = sum(record.project == project.name for record in staging.jobs.values())
    if active >= project.most_active:
        most = project.most_active
        raise LimitError(f"project {project.name} has {active} active jobs; the limit is {most}; wait for one to end")


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


def check_budget(job: JobFile, is_priced: bool) -> None:
    """Refuse a budget where nothing has a price."""
    if job.budget is not None and not is_priced:
        raise JobError(
            "budget needs a price: set price_per_device_hour in the server's server.yaml, or leave budget out"
        )


def hold_to_memory(job: JobFile, most: str | None) -> JobFile:
    """The job with the memory that it has where it asks for none; refused if it asks for more than any may have."""
    if most is None or (job.memory_bytes is not None and job.memory_bytes <= parse_size(most, "most_memory")):
        return job
    if job.memory is not None:
        raise JobError(f"memory {job.memory} is more than the {most} that this server gives a job; ask for less")
    return job.model_copy(update={"memory": most})


def check_mail(job: JobFile, has_mail: bool) -> None:
    """Refuse mail where no server sends it."""
    if not has_mail and any(notice.email is not None for notice in job.notify):
        raise JobError("notify.email needs a mail server: set smtp in the server's server.yaml, or use a webhook")


def stage_secrets(context: Context, record: JobRecord, given: Mapping[str, str]) -> None:
    """Keep the values of a job's secrets until it ends; one that has none, now or from before, is an error."""
    names = record.spec.secrets
    missing = [name for name in names if name not in given]
    if missing and not context.state_dir.secrets_file(record.id).exists():
        raise JobError(f"secret {missing[0]} has no value; set it in the environment you submit or resume from")
    if not missing:
        context.staging.secrets[record.id] = {name: given[name] for name in names}


def split_sweep(context: Context, submission: Submission) -> list[Submission]:
    """The submissions of the jobs of a sweep, under names and keys that are the same when it is sent again."""
    if submission.job.sweep is None:
        raise JobError("it has no sweep, so it makes one job; send it to /api/v1/jobs")
    owner = name_owner(submission, find_submitter(context.staging.store, submission))
    array_id = secrets.token_hex(4) if submission.key is None else name_keyed_array(owner, submission.key)
    job, whole = submission.job, submission.job.sweep.promise == "whole"
    base = job.name or f"{make_name(job, job.script)[:-5]}-{array_id[:4]}"
    swept = expand_sweep(job)
    made: list[Submission] = []
    for one in swept:
        name = name_swept(base, one.number, len(swept))
        place = ArrayPlace(array_id, base, one.number, len(swept), whole, dict(one.values))
        key = None if submission.key is None else f"{submission.key}.{one.number}"
        named = one.job.model_copy(update={"name": name})
        made.append(replace(submission, job=named, key=key, place=place))
    return made


def find_checkpoint(record: JobRecord, state_dir: StateDir, run_as: str | None) -> int:
    """The step from which a job would go on: that of its last checkpoint, which may have been removed since.

    Looked for as the user that it runs as, who may have named any folder, also one that never answers.
    """
    job = record.spec
    if not job.elastic:
        return 0
    folder = find_folder(job, state_dir, record.id)
    try:
        seen = max(0, CheckpointFolder(folder, run_as).find_step())
    except TimeoutError:
        raise UnavailableError(f"the folder of checkpoints {folder} did not answer in time; {UNDONE}") from None
    except OSError as error:
        why = f"cannot be read by {run_as or 'the server'}: {error.strerror or error}"
        raise JobError(f"the folder of checkpoints {folder} {why}; nothing was done") from None
    if find_url(job, state_dir, record.id) is not None:
        return max(seen, record.saved_step)  # the receipts may lie on another host
    return seen
