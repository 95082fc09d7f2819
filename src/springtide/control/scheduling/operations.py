"""Where requests come in: submit, cancel, resume, accept an offer, plan. Runs in the reconciler's thread.

Checks who may do what and what is possible at all; the policy does the rest.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path, PurePosixPath

from springtide.control.scheduling import device_types, drains, effects, offers, quotas, sentences, speeds, submissions
from springtide.control.scheduling.context import Context
from springtide.control.scheduling.reconciler import Reconciler, decide_with
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.records import JobRecord, State
from springtide.control.storage.state_dir import StateDir, write_secrets
from springtide.core.decisions import Answer, Status
from springtide.core.job_file import JobFile
from springtide.core.jobs import Job, JobId
from springtide.errors import InputError, JobError
from springtide.executors.local.jobs.checkpoint_folder import CheckpointFolder

FAR = "3650d"  # a deadline for jobs that are only to be measured: without one nobody would


class LimitError(InputError):
    """A user has reached a limit; try again later."""


class MissingError(InputError):
    """There is no such thing, or it is not this user's."""


class ConflictError(InputError):
    """The job is in a state in which that cannot be done."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What `plan` says: the answer a submission would get now, and how each share would do."""

    state: str
    reason: str
    sentence: str
    deadline_s: float | None = None
    finish_s: float | None = None
    total_steps: int | None = None
    #: (share, steps per second, the slow end of it, seconds alone)
    shares: tuple[tuple[int, float, float, float], ...] = ()
    offers: tuple[sentences.OfferDraft, ...] = ()
    plan: tuple[tuple[float, int], ...] = ()
    cost_usd: float | None = None


@dataclass(slots=True)
class Operations:
    """The requests of users, by a reconciler."""

    reconciler: Reconciler

    def drain(self, node: str, grace_s: float) -> None:
        """Let a node take no more work, and its jobs leave within the grace."""
        drains.drain(self.reconciler.platform, node, grace_s, self.reconciler.decide)
        self.reconciler.dirty = True

    def undrain(self, node: str) -> None:
        """Let a drained node take work again."""
        drains.undrain(self.reconciler.platform, node)
        self.reconciler.dirty = True

    def submit(self, submission: Submission) -> str:
        """Take in a job; returns its id. The answer is in its record once the present step is over."""
        platform = self.reconciler.platform
        job = submission.job
        check_active(platform, submission.user)
        check_code(self.reconciler, submission)
        check_budget(job, platform.options.price_per_device_hour)
        check_folder(job, platform.book.active())
        record = submissions.make_record(submission, platform.clock, platform.torch_version)
        record = replace(record, accept_offer=submission.accept_offer)
        self.keep_secrets(record, submission.secrets)
        record = platform.book.add(record)
        platform.book.note("submitted", f"{record.user} submitted {record.name}", record.id)
        refusal = submissions.refuse_early(record, job, platform.site) or quotas.check_quota(platform, record)
        if refusal is not None:
            effects.decline(platform, record.id, refusal.reason, refusal.sentence)
            return record.id
        effects.arrive(platform, record.id)
        self.reconciler.dirty = True
        return record.id

    def cancel(self, job_id: str, by: str) -> None:
        """End a job for good; one that has ended stays as it is."""
        platform = self.reconciler.platform
        if job_id not in platform.book.jobs:
            return
        if platform.book.jobs[job_id].state is State.OFFERED:
            offers.close(platform, job_id, "withdrawn")
        effects.cancel(platform, job_id, f"cancelled by {by}")
        self.reconciler.dirty = True

    def keep_secrets(self, record: JobRecord, given: Mapping[str, str]) -> None:
        """Keep the values of a job's secrets until it ends; one that has none, now or from before, is an error."""
        platform, names = self.reconciler.platform, record.spec.get("secrets", ())
        missing = [name for name in names if name not in given]
        if not missing:
            own = {name: given[name] for name in names}
            write_secrets(platform.home, record.id, own, platform.find_run_as(record.user))
        elif not platform.home.secrets_file(record.id).exists():
            raise JobError(f"secret {missing[0]} has no value; set it in the environment you submit or resume from")

    def resume(self, job_id: str, secrets: Mapping[str, str] | None = None) -> None:
        """Let a paused, cancelled or failed job go on from its last checkpoint; it is answered anew.

        Its secrets were deleted when it ended, so they come along again. A budget that was spent counts anew.
        """
        platform = self.reconciler.platform
        record = platform.book.jobs.get(job_id) or self.reconciler.store.job(job_id)
        if record is None or record.state not in (State.PAUSED, State.CANCELLED, State.FAILED):
            state = record.state if record is not None else "gone"
            raise ConflictError(f"job {job_id} is {state}; only paused, cancelled and failed jobs can be resumed")
        if not record.active:
            check_active(platform, record.user)
            check_folder(JobFile.model_validate(record.spec), platform.book.active())
        is_late = record.deadline_s is not None and record.deadline_s <= platform.clock.now_s()
        step = find_checkpoint(record, platform.home)
        record = replace(record, deadline_s=None if is_late else record.deadline_s, step=step)
        if record.reason == "budget":
            record = replace(record, served=0.0)
        refusal = quotas.check_quota(platform, record)
        if refusal is not None:
            raise LimitError(refusal.sentence)
        self.keep_secrets(record, secrets or {})
        platform.book.jobs[job_id] = record
        platform.book.change(
            job_id,
            state=State.WAITLISTED,
            promised=False,
            plan=None,
            endangered=False,
            missed="",
            finished_s=None,
            exit_code=None,
        )
        late = "; its deadline has passed, so it is best effort now" if is_late else ""
        platform.book.note("resumed", f"goes on from step {step}{late}", job_id)
        effects.arrive(platform, job_id)
        take_up(platform, platform.book.jobs[job_id])
        self.reconciler.dirty = True

    def accept(self, job_id: str, offer_id: str | None) -> None:
        """Take an open offer of a job: the one named, or the nearest."""
        platform = self.reconciler.platform
        found = [
            offer
            for offer in offers.list_open(platform, job_id)
            if offer.expires_s > platform.clock.now_s() and offer_id in (None, offer.id)
        ]
        if not found or job_id not in platform.book.jobs:
            raise ConflictError(f"job {job_id} has no open offer{f' {offer_id}' if offer_id else ''}; submit it again")
        offers.accept(platform, found[0])
        self.reconciler.dirty = True

    def measure(self, submission: Submission) -> str:
        """Have unknown code measured for a plan; returns the id of the job that does so, and ends when it has."""
        name = f"plan-{submissions.make_name(submission.job)}"[:63]
        own = submission.job.checkpoint.model_copy(update={"dir": None})
        far = submission.job.model_copy(update={"deadline": FAR, "name": name, "budget": None, "checkpoint": own})
        job_id = self.submit(replace(submission, job=far, accept_offer=False))
        self.reconciler.remember_plans({*self.reconciler.plans, job_id})
        return job_id

    def plan(self, submission: Submission) -> Forecast:
        """What a submission would be told now; stores and reserves nothing."""
        platform = self.reconciler.platform
        check_code(self.reconciler, submission)
        check_budget(submission.job, platform.options.price_per_device_hour)
        record = submissions.make_record(submission, platform.clock, platform.torch_version)
        record = replace(record, seq=platform.book.next_seq)
        return forecast(self.reconciler, record, submission.job, self.reconciler.admits)


def forecast(reconciler: Reconciler, record: JobRecord, file: JobFile, admits: Callable[[Job], bool]) -> Forecast:
    """What the policy would say to a record."""
    platform = reconciler.platform
    refusal = submissions.refuse_early(record, file, platform.site) or quotas.check_quota(platform, record)
    if refusal is not None:
        return Forecast("declined", refusal.reason, refusal.sentence, record.deadline_s)
    known = platform.known(record)
    if file.elastic and not (speeds.is_measured(known) and submissions.count_steps(record, file, known)):
        sentence = "unknown speed: `plan --probe` runs it for at most 15 s"
        return Forecast("unknown", "unknown_speed", sentence, record.deadline_s)
    job = platform.build_job(record)
    decision = decide_with(platform, reconciler.decide, job)
    answer = decision.answers.get(job.id, Answer(Status.WAITLISTED))
    promise = decision.promises.get(job.id)
    plan = promise.plan if promise is not None else None
    now_s = platform.clock.now_s()
    if answer.status is Status.ADMITTED:
        sentence = sentences.tell_admitted(record, answer, plan, speeds.has_margin(known), now_s)
    elif answer.status is Status.WAITLISTED:
        sentence = sentences.tell_waitlisted(answer, now_s)
    else:
        sentence = sentences.tell_declined(record, job, answer, now_s)
    declined = answer.status is Status.DECLINED and record.deadline_s is not None
    price = platform.options.price_per_device_hour
    return Forecast(
        str(answer.status),
        sentences.name_reason(answer.reason),
        sentence,
        record.deadline_s,
        plan.finish_s if plan is not None and plan.finish_s < inf else None,
        int(job.work) if file.elastic else None,
        list_shares(job, known),
        tuple(sentences.find_offers(job, answer, now_s, admits)) if declined else (),
        tuple((segment.start_s, segment.share) for segment in plan.segments) if plan is not None else (),
        None if price is None else price * quotas.least_device_s(job) / 3600.0,
    )


def list_shares(job: Job, known: speeds.Known) -> tuple[tuple[int, float, float, float], ...]:
    """How each share would do: expected speed, the speed that plans count on, seconds alone from start to end.

    Where there are several device types, on the fastest.
    """
    speed = next(iter(known.values()), None) if job.typed is None else known.get(job.typed.fastest)
    rates = device_types.expect_rates(speed, job.curve)
    return tuple(
        (share, rates[share], slow, job.overhead.pause_s(share, starting=True) + job.work / slow)
        for share, slow in zip(job.curve.shares, job.curve.rates, strict=True)
    )


def check_code(reconciler: Reconciler, submission: Submission) -> None:
    """Refuse a job whose code was not uploaded, or whose script is not in it."""
    folder = reconciler.platform.home.code / submission.archive
    script = PurePosixPath(submission.job.script)
    if ".." in script.parts:
        raise JobError(f"script {str(script)!r} lies outside workdir; set workdir to a folder that holds it")
    is_inside = script.suffix == ".py" and not script.is_absolute()
    if is_inside and (folder / script).is_file():
        return
    if not folder.is_dir():
        raise JobError(f"archive {submission.archive} is not here; upload it before submitting")
    if is_inside:
        raise JobError(f"script {str(script)!r} does not exist in workdir; check `run` and `workdir`")


def check_active(platform: Context, user: str) -> None:
    """Refuse a user who has too many active jobs."""
    refusal = quotas.check_active(platform, user)
    if refusal:
        raise LimitError(refusal)


def find_checkpoint(record: JobRecord, home: StateDir) -> int:
    """The step from which a job would go on: that of its last checkpoint, which may have been removed since."""
    job = JobFile.model_validate(record.spec)
    if not job.elastic:
        return 0
    folder = Path(job.checkpoint.dir) if job.checkpoint.dir is not None else home.checkpoints(record.id)
    return max(0, CheckpointFolder(folder).seen)


def take_up(platform: Context, record: JobRecord) -> None:
    """Let the world know what a job that goes on has behind it: steps, device-seconds, seconds of running."""
    view = platform.world.jobs.get(JobId(record.id))
    if view is not None:
        platform.world.resume(view.job.id, record.step, record.served, record.ran_s)


def check_folder(job: JobFile, active: Iterable[JobRecord]) -> None:
    """Refuse a checkpoint folder that another job uses now: each would go on from, and clear away, the other's."""
    wanted = job.checkpoint.dir
    if wanted is None:
        return
    for other in active:
        used = other.spec.get("checkpoint", {}).get("dir")
        if used is not None and PurePosixPath(used) == PurePosixPath(wanted):
            raise JobError(f"checkpoint.dir {wanted} is in use by job {other.name}; wait for its end or choose another")


def check_budget(job: JobFile, price: float | None) -> None:
    """Refuse a budget where nothing has a price."""
    if job.budget is not None and price is None:
        raise JobError(
            "budget needs a price: set price_per_device_hour in the server's server.yaml, or leave budget out"
        )
