"""Where requests come in: submit, cancel, resume, accept an offer, plan, drain. Runs in the reconciler's thread.

Checks who may do what and what is possible at all; the policy does the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf

from springtide.control.scheduling import means, offers, sentences, submissions, transitions, waiting
from springtide.control.scheduling.differences import PlanDifference, compare_decisions
from springtide.control.scheduling.expected_ends import expect_rates
from springtide.control.scheduling.live_jobs import JobFacts, find_slowdown, look_up, make_job
from springtide.control.scheduling.machines import forgotten_nodes, nodes
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.offer_search import OfferDraft, find_offers
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.places.folder_claims import check_folder
from springtide.control.storage.records import EventRecord, JobRecord
from springtide.control.storage.staging import Effects
from springtide.core.decisions import Answer, Decision, Status
from springtide.core.job_states import JobState
from springtide.core.jobs import Job, JobId, Purpose
from springtide.core.receipt_format import Verification
from springtide.errors import ConflictError, JobError, LimitError

FAR = "3650d"  # a deadline for jobs that are only to be measured: without one nobody would
UNKNOWN = "nobody has measured this code yet; `plan --probe` measures it, in at most 15 s"


def can_hold(record: JobRecord) -> bool:
    """Whether a job waits or runs; one with an open offer holds nothing."""
    return record.active and record.state not in (JobState.PAUSED, JobState.OFFERED)


def can_release(record: JobRecord) -> bool:
    """Whether a job is held."""
    return record.state is JobState.PAUSED and record.reason == waiting.HELD


def can_resume(record: JobRecord) -> bool:
    """Whether a job that does nothing could go on."""
    return record.state in (JobState.PAUSED, JobState.CANCELLED, JobState.FAILED)


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
    offers: tuple[OfferDraft, ...] = ()
    #: The least that each of them would cost; None where nothing has a price.
    offer_costs: tuple[float | None, ...] = ()
    plan: tuple[tuple[float, int], ...] = ()
    cost_usd: float | None = None
    promised: bool = False
    #: Whether nothing can be said before its speed is measured.
    unmeasured: bool = False
    #: What it would change for other jobs, if that was asked.
    differences: tuple[PlanDifference, ...] = ()


@dataclass(slots=True)
class Operations:
    """The requests of users, by a reconciler."""

    reconciler: Reconciler

    def drain(self, node: str, grace_s: float) -> None:
        """Let a node take no more work, and its jobs leave within the grace."""
        context = self.reconciler.context
        nodes.drain(context.staging, context.world, node, grace_s, self.reconciler.decide)
        self.reconciler.dirty = True

    def undrain(self, node: str) -> None:
        """Let a drained node take work again, one that is lost when it is back."""
        context = self.reconciler.context
        if not forgotten_nodes.undrain_lost(context.staging, context.world, node):
            nodes.undrain(context.staging, context.world, node, self.reconciler.decide)
        self.reconciler.dirty = True

    def submit(self, submission: Submission) -> str:
        """Take in a job; returns its id. The answer is in its record once the present step is over.

        One that was sent before under the same key has the same answer.
        """
        if submission.job.sweep is not None:
            raise JobError("it has a sweep, which makes several jobs; send it to /api/v1/arrays")
        opened = self.open(submission)
        if isinstance(opened, JobRecord):
            waiting.enter(self.reconciler.context, opened)
            self.reconciler.dirty = True
        return opened if isinstance(opened, str) else opened.id

    def submit_array(self, submission: Submission) -> tuple[str, ...]:
        """Take in all jobs of a sweep, or none; returns their ids, the first one first."""
        opened = [self.open(one) for one in submissions.split_sweep(self.reconciler.context, submission)]
        for record in opened:
            if isinstance(record, JobRecord) and self.reconciler.context.staging.jobs[record.id].active:
                waiting.enter(self.reconciler.context, record)
                self.reconciler.dirty = True
        return tuple(one if isinstance(one, str) else one.id for one in opened)

    def open(self, submission: Submission) -> JobRecord | str:
        """The staged record of a new job that is to be answered; the id of one that has its answer already."""
        staging = self.reconciler.context.staging
        repeated = submissions.find_repeated(staging, submission)
        if repeated is not None and repeated.request_hash != submission.content_hash:
            raise ConflictError(
                f"the Idempotency-Key {submission.key} was used for another submission, job {repeated.id}; "
                "send the same content again, or another key"
            )
        if repeated is not None:
            return repeated.id
        record, refusal = submissions.open_record(self.reconciler.context, submission)
        sentence = f"{record.user} submitted {record.name}"
        record = staging.add(record, EventRecord(staging.now_s, "submitted", sentence, record.id))
        if refusal is not None:
            staging.stage(transitions.decline(record, refusal.reason, refusal.sentence, staging.now_s))
            return record.id
        return record

    def hold(self, job_id: str, by: str) -> None:
        """Let a job wait until it is released, after a checkpoint if it runs; one whose answer is open keeps it so."""
        staging, world = self.reconciler.context.staging, self.reconciler.context.world
        record = staging.jobs.get(job_id)
        if record is None or not record.active or record.state is JobState.PAUSED:
            state = record.state if record is not None else "over"
            raise ConflictError(f"job {job_id} is {state}; only jobs that wait or run can be held")
        if record.state is JobState.OFFERED:
            raise ConflictError(f"job {job_id} has an open offer and holds nothing; accept it or cancel the job")
        waiting.hold(staging, world, job_id, f"held by {by}; let it go: {waiting.tell_release(record)}")
        self.reconciler.dirty = True

    def release(self, job_id: str, step: int, secrets: Mapping[str, str] | None = None) -> None:
        """Let a held job go on: it waits for the jobs it waits for, or is answered anew. `step` as in `resume`."""
        context, record = self.reconciler.context, self.reconciler.context.staging.jobs.get(job_id)
        if record is None or not can_release(record):
            state = record.state if record is not None else "over"
            raise ConflictError(f"job {job_id} is {state}, not held; only held jobs can be released")
        if record.waits_for:
            waiting.enter(context, record)
        else:
            waiting.count_anew(context, record)
            self.resume(job_id, step, secrets)
        self.reconciler.dirty = True

    def cancel(self, job_id: str, by: str) -> None:
        """End a job for good; one that has ended stays as it is."""
        staging, world = self.reconciler.context.staging, self.reconciler.context.world
        if job_id not in staging.jobs:
            return
        if staging.jobs[job_id].state is JobState.OFFERED:
            offers.close(staging, world, job_id, "withdrawn")
        transitions.cancel(staging, world, job_id, f"cancelled by {by}")
        self.reconciler.dirty = True

    def resume(self, job_id: str, step: int, secrets: Mapping[str, str] | None = None) -> None:
        """Let a paused, cancelled or failed job go on from its last checkpoint; it is answered anew.

        The caller finds the step of that (`submissions.find_checkpoint`): no folder is looked into here. Its
        secrets were deleted when it ended, so they come along again. A budget that was spent counts anew.
        """
        context, staging, world = (
            self.reconciler.context,
            self.reconciler.context.staging,
            self.reconciler.context.world,
        )
        record = staging.jobs.get(job_id) or self.reconciler.store.job(job_id)
        if record is None or not can_resume(record):
            state = record.state if record is not None else "gone"
            raise ConflictError(f"job {job_id} is {state}; only paused, cancelled and failed jobs can be resumed")
        user = staging.store.find_owner(record.owner)
        if not record.active:
            submissions.check_limits(staging, record.owner, user, context.options, record.spec)
        else:
            check_folder(record.spec, record.owner, staging, record.id)
        is_late = record.deadline_s is not None and record.deadline_s <= staging.now_s
        staging.store.find_run_as(record.owner)  # raises where nobody knows
        record = replace(record, deadline_s=None if is_late else record.deadline_s, step=step)
        granted = means.tell_grant(record)
        record = means.grant_anew(replace(record, saved_step=step))
        refusal = means.check_means(staging, world, record, user)
        if refusal is not None:
            raise LimitError(refusal.sentence)
        if record.spec.secrets:
            submissions.stage_secrets(context, record, secrets or {})
        record = replace(record, state=JobState.WAITLISTED, plan=None, missed="", finished_s=None, exit_code=None)
        record = replace(record, promised=False, endangered=False, measure_only=False, weights="", waits_for=())
        record = replace(
            record, array_place=None if record.array_place is None else replace(record.array_place, whole=False)
        )
        staging.stage(Effects(record))
        late = "; its deadline has passed, so it is best effort now" if is_late else ""
        staging.add_event("resumed", f"goes on from step {step}{late}{granted}", job_id)
        transitions.arrive(staging, world, record)
        view = world.jobs[JobId(job_id)]
        if view.job.purpose is Purpose.TRAIN:
            world.resume(view.job.id, step, record.served, record.ran_s)
        self.reconciler.dirty = True

    def accept(self, job_id: str, offer_id: str | None) -> None:
        """Take an open offer of a job: the one named, or the nearest."""
        context, staging = self.reconciler.context, self.reconciler.context.staging
        is_open = job_id in staging.jobs
        there = [one for one in staging.list_open_offers(job_id) if is_open and one.expires_s > staging.now_s]
        found = [one for one in there if offer_id in (None, one.id)]
        if not found:
            named = f" {offer_id}" if offer_id else ""
            remedy = f"there are: {', '.join(one.id for one in there)}" if there else "submit it again"
            raise ConflictError(f"job {job_id} has no open offer{named}; {remedy}")
        offers.accept(staging, context.world, found[0])
        if transitions.lacks_secrets(staging, context.state_dir, job_id):
            transitions.await_secrets(staging, context.world, job_id)
        self.reconciler.dirty = True

    def note_verification(self, job_id: str, by: str, found: Verification) -> None:
        """Keep with a job that somebody has put its receipt to the proof."""
        kind = "verified" if found.holds else "not_verified"
        self.reconciler.context.staging.add_event(kind, f"{by}: {found.sentence}", job_id, **asdict(found))

    def measure(self, submission: Submission) -> str:
        """Have unknown code measured for a plan; returns the id of the job that does so, and ends when it has."""
        name = f"plan-{submissions.make_name(submission.job, submission.job.script)}"[:63]
        own = submission.job.checkpoint.model_copy(update={"dir": None})
        far = submission.job.model_copy(update={"deadline": FAR, "name": name, "budget": None, "checkpoint": own})
        return self.submit(replace(submission, job=far, accept_offer=False, measure_only=True))

    def plan(self, submission: Submission, compare: bool = False) -> Forecast:
        """What a submission would be told now, and with `compare` what that changes; stores and reserves nothing."""
        context = self.reconciler.context
        staging, world = context.staging, context.world
        user = submissions.find_submitter(staging.store, submission)
        record = submissions.make_record(context, submission, user)
        refusal = submissions.refuse(staging, world, record, user)
        if refusal is not None:
            told = f"would be declined: {refusal.sentence}"
            return Forecast("declined", refusal.reason, told, record.deadline_s)
        facts = look_up(record, staging.speeds, world.inventory)
        if record.spec.elastic and not (facts.measured and facts.steps):
            return Forecast("unknown", transitions.UNMEASURED, UNKNOWN, record.deadline_s, unmeasured=True)
        return self.forecast(record, make_job(record, facts, world.inventory), facts, compare)

    def forecast(self, record: JobRecord, job: Job, facts: JobFacts, compare: bool = False) -> Forecast:
        """What the policy would say to a job whose speed is known."""
        context, now_s = self.reconciler.context, self.reconciler.context.staging.now_s
        try:
            decision = self.reconciler.decide_with(job)
        except Exception as error:
            sentence = sentences.tell_policy_failure(context.options.policy, error)
            return Forecast(str(Status.WAITLISTED), sentences.POLICY_FAILED, sentence, record.deadline_s)
        answer = decision.answers.get(job.id, Answer(Status.WAITLISTED))
        promise = decision.promises.get(job.id)
        plan = promise.plan if promise is not None else None
        if answer.status is Status.ADMITTED:
            has_margin = answer.promised and facts.has_margin
            sentence = sentences.tell_admitted(record, answer, plan, has_margin, only_asked=True)
        elif answer.status is Status.WAITLISTED:
            sentence = f"would wait: {sentences.tell_waitlisted(answer)}"
        else:
            sentence = f"would be declined: {sentences.tell_declined(record, job, answer, now_s)}"
        if record.deadline_s is not None:
            sentence += sentences.tell_slowed(find_slowdown(job, self.reconciler.inventory), now_s)
        declined = answer.status is Status.DECLINED and record.deadline_s is not None
        elastic, admits = record.spec.elastic, self.reconciler.admits
        offers = tuple(find_offers(job, answer, now_s, admits, elastic)) if declined else ()
        inventory = self.reconciler.inventory
        is_known = elastic or record.spec.duration_s is not None
        return Forecast(
            str(answer.status),
            sentences.REASONS.get(answer.reason, answer.reason),
            sentence,
            record.deadline_s,
            plan.finish_s if plan is not None and plan.finish_s < inf else None,
            int(job.work) if elastic else None,
            list_shares(job, facts) if elastic else (),  # a gang has no steps that anybody counts
            offers,
            tuple(least_usd(job, inventory, float(one.steps) if one.steps else None) for one in offers),
            tuple((segment.start_s, segment.share) for segment in plan.segments) if plan is not None else (),
            least_usd(job, inventory) if is_known else None,
            answer.promised,
            differences=tuple(self.compare(decision)) if compare else (),
        )

    def compare(self, decision: Decision) -> Iterator[PlanDifference]:
        """What a decision that was only tried would change, beside the one that would be made without it."""
        context, reconciler = self.reconciler.context, self.reconciler
        without = reconciler.decide(context.staging.now_s, context.world.copy().snapshot())
        return compare_decisions(context.world.jobs, without, decision)


def least_usd(job: Job, inventory: Inventory, work: float | None = None) -> float | None:
    """The least that a job, or so much of it, can cost: on the device type where that is least.

    None where nothing has a price.
    """
    if inventory.prices.is_empty:
        return None
    return means.find_cheapest(job, job.work if work is None else work, inventory)[0]


def list_shares(job: Job, facts: JobFacts) -> tuple[tuple[int, float, float, float], ...]:
    """How each share would do: expected speed, the speed that plans count on, seconds alone from start to end.

    Where there are several device types, on the fastest.
    """
    speed = next(iter(facts.speeds.values()), None) if job.typed is None else facts.speeds.get(job.typed.fastest)
    rates = expect_rates(speed, job.curve)
    return tuple(
        (share, rates[share], slow, job.overhead.pause_s(share, starting=True) + job.work / slow)
        for share, slow in zip(job.curve.shares, job.curve.rates, strict=True)
    )
