"""What a user is told, in words: answers with their times, changes of devices with their causes, offers, failures.

Pure: every sentence is made of values that were decided elsewhere. Sentences that are kept hold marks of instants
(`core.moments`), to be told as seen from when they are read.
"""

from collections.abc import Sequence
from math import inf

from springtide.control.storage.database.databases import find_cause
from springtide.control.storage.records import AwaitedJob, JobRecord, OfferRecord
from springtide.core.decisions import Answer, Cause, Plan, Reason
from springtide.core.dependencies import AfterEnd
from springtide.core.durations import show_instant, show_span
from springtide.core.job_states import JobState
from springtide.core.jobs import Job
from springtide.core.moments import mark_moment

POLICY_FAILED = "policy_failed"
PROBING = "its speed is not known yet; a probe of at most 15 s measures it"
PROBE_NOW = "a device is free now; a probe of at most 15 s measures its speed"
PROBE_YIELDS = "its probe gave way to a promise; it will go on"
UNMEASURED_IN_TIME = (
    "no device was free to measure its speed before its answer was due; submit it with a later deadline"
)
NO_STEPS = "its probe ended before the first step; it cannot be promised a finish, run it without a deadline"
LOST = "the executor lost it; it starts again"
MEASURED = "measured for a plan; submit it to have it run"
DEALT_ANEW = "its logical workers are dealt out by what was measured"
#: The platform's reason codes for those of policies, where they differ.
REASONS = {"late": "deadline_too_tight", "makes_others_late": "would_break_promises"}


def tell_admitted(record: JobRecord, answer: Answer, plan: Plan | None, margin: bool, only_asked: bool = False) -> str:
    """The sentence of an admitted job; `only_asked`: of one that would be."""
    would = "would be " if only_asked else ""
    if record.deadline_s is None:
        return f"{would}admitted as best effort: {answer.sentence or 'it runs when devices are free for it'}"
    if not answer.promised:
        return f"{would}admitted without a promise: {answer.sentence or 'the policy makes none'}"
    sentence = f"{would}promised to finish by {mark_moment(record.deadline_s)}"
    if plan is not None and plan.finish_s < inf:
        sentence += f"; planned to end by {mark_moment(plan.finish_s)}"
    if margin:
        sentence += "; the plan adds 25 % more time until one whole epoch has been seen"
    return sentence


CAUSES = {
    Cause.PLANNED: "its plan gives it this share from now on",
    Cause.TIGHT: "its plan left less than a tenth of the time to its deadline, so it goes before best-effort jobs",
    Cause.SPARE: "it makes the best use of devices that no promise needs now",
    Cause.TURN: "it is its turn",
    Cause.NEEDLESS: "with fewer it ends just as soon, or still in time",
    Cause.DROPPED: "it can no longer end in time",
    Cause.CLAIMED: "their owner wants them back",
    Cause.YIELDS: "they go to",
    Cause.MOVED: "it makes room on neighbouring devices for",
}


def name_node(node: str) -> str:
    """A node in a sentence; most are called node-1 or so, and need not be called a node twice."""
    return node if node.startswith("node") else f"node {node}"


def tell_reason(reason: Reason, other: JobRecord | None, owner: str) -> str:
    """Why the devices of a user's job change: for itself, or for another job, named only if it is that user's."""
    text = CAUSES[reason.cause]
    if reason.cause not in (Cause.YIELDS, Cause.MOVED):
        return text
    if other is None or other.owner != owner:
        return f"{text} another job" if other is None else f"{text} another user's job"
    if other.state is JobState.PROBING:
        return f"{text} the probe of {other.name}, which measures its speed"
    by = "" if other.deadline_s is None else f", due {mark_moment(other.deadline_s)}"
    return f"{text} {other.name}{by}"


def tell_waitlisted(answer: Answer) -> str:
    """The sentence of a job whose answer comes later."""
    when = "" if answer.answer_by_s == inf else f"; the answer comes by {mark_moment(answer.answer_by_s)}"
    return f"{answer.sentence or 'no promise can be made yet'}{when}"


def tell_declined(record: JobRecord, job: Job, answer: Answer, now_s: float) -> str:
    """The sentence of a job that is declined."""
    if record.deadline_s is None:
        return answer.sentence
    alone_s, span_s = job.alone_s(), record.deadline_s - now_s
    if span_s <= 0:
        return (
            f"its deadline passed at {mark_moment(record.deadline_s)}, before its speed was known; "
            f"it needs {show_span(alone_s)}"
        )
    if alone_s > span_s:
        return (
            f"it needs {show_span(alone_s)} even with the cluster to itself; "
            f"it had {show_span(span_s)} until its deadline, {mark_moment(record.deadline_s)}"
        )
    return answer.sentence or "no plan ends it by its deadline without breaking a promise"


def tell_policy_failure(policy: str, error: BaseException) -> str:
    """That the policy has failed, with its error; nothing was decided, and it is asked again."""
    cause = find_cause(error)
    what = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
    return f"policy {policy} failed ({what}); nothing was decided, and it is asked again"


def tell_unmeasured(free_s: float, answer_by_s: float) -> str:
    """The sentence of a job that waits for a device on which to be measured; `free_s` is when one is expected."""
    soon = "" if free_s == inf else f" (expected at {mark_moment(free_s)})"
    return (
        f"no device is free for a probe; its speed is measured as soon as one is free{soon}; "
        f"the answer comes by {mark_moment(answer_by_s)}"
    )


def tell_offer(offer: OfferRecord) -> str:
    """An offer in one sentence."""
    by = mark_moment(offer.deadline_s)
    if offer.kind == "deadline":
        what = f"all {offer.steps} steps" if offer.steps else "all of it"  # a gang tells no steps
        return f"{what} could be promised by {by}"
    return f"{offer.steps} steps could be promised by the same deadline, {by}"


def tell_at_risk(predicted_s: float, deadline_s: float) -> str:
    """That a promise is in danger, and by how much."""
    return f"expected to end {show_span(predicted_s - deadline_s)} after its deadline, at {show_instant(predicted_s)}"


def tell_load(machine: str, cores: float, outside: float, slowdown: float, since_s: float) -> str:
    """What others take of a machine, and what that does."""
    return (
        f"other programs want {outside:.1f} of the {cores:.0f} cores of {machine or 'this machine'}, since "
        f"{mark_moment(since_s)}: until that ends, plans take work on its devices to last {slowdown:.1f} times as long"
    )


def tell_outage(outage: str) -> tuple[str, str]:
    """The event of an executor that cannot do something any more, or can do everything again: its kind, and words."""
    return ("outage", outage) if outage else ("outage_over", "the executor can do everything again")


def tell_slowed(slowdown: float, at_s: float) -> str:
    """That an answer or a danger rests on speeds that others had lowered then; nothing where they had not."""
    if slowdown <= 1.0:
        return ""
    others = f"other programs used the processors at {mark_moment(at_s)}"
    return f"; {others}, so it is planned to take {slowdown:.1f} times as long"


def tell_stalled(step: int, stepped_s: float, patience: str | None) -> str:
    """That a running job makes no steps, and when it is started again for that."""
    limit = "30 s without processor time, or 15 min in any case" if patience is None else f"its patience of {patience}"
    return (
        f"it hangs or waits: its last step, {step}, was at {mark_moment(stepped_s)}; it starts again after {limit}; "
        'if it only waits: a longer `patience:`, or `with run.busy("..."):`'
    )


def tell_lagging(device: str, factor: float) -> str:
    """That one of a job's processes is slower than the others."""
    return (
        f"its process on {device} takes {factor:.1f} times as long for its turns as the others, which wait for it at "
        "every step"
    )


IN_STEP = "no process holds the others up any more"
ENDS = {AfterEnd.OK: "succeed", AfterEnd.FAILED: "fail", AfterEnd.ANY: "end"}


def tell_waits(awaited: Sequence[AwaitedJob]) -> str:
    """That a job waits for others."""
    return "waits for " + " and ".join(f"{one.name} ({one.id}) to {ENDS[one.end]}" for one in awaited)


def tell_never(awaited: AwaitedJob, state: JobState) -> str:
    """That what a job waited for will not come."""
    return f"cancelled because it waited for {awaited.name} ({awaited.id}) to {ENDS[awaited.end]}, and that is {state}"


WAITS_FOR_ARRAY = "measured; its array is promised as a whole, once all of its jobs are measured"


def tell_inputs(changed: Sequence[str], step: int) -> str:
    """That inputs are no longer what they were."""
    names = " and ".join(changed)
    return f"its input {names} changed while it was at step {step}: steps before and after have seen different data"


def tell_missed(cause: str) -> str:
    """That a deadline has passed."""
    return f"its deadline passed before it ended ({cause}); it runs on as the first of the best-effort jobs"


def tell_stopped(step: int, reason: str, lost: int) -> str:
    """The sentence of a job that gave its devices back; `lost`: the reported steps that are in no checkpoint."""
    steps, are = ("step", "is") if lost == 1 else ("steps", "are")
    after = f"; about {lost} {steps} since its last checkpoint {are} lost" if lost else ""
    return f"gave its devices back at step {step}: {reason}{after}"


def tell_finish(step: int, reason: str | None) -> str:
    """The sentence of a job that ended well."""
    after = f" after step {step}" if step else ""  # a gang tells no steps
    return f"finished{after}" + (f": {reason}" if reason else "")


def tell_margin(record: JobRecord) -> str:
    """How a finish compares with its promise."""
    if not record.promised or record.deadline_s is None or record.finished_s is None:
        return ""
    if record.state is not JobState.SUCCEEDED:
        return ""
    early_s = record.deadline_s - record.finished_s
    return f"; {show_span(early_s)} before its deadline" if early_s >= 0 else f"; {show_span(-early_s)} late"


def tell_no_code(job_id: str) -> str:
    """Why a job waits for its owner after a take-over that did not find its code."""
    return (
        "its code is not on this machine, and storage has none that is what was uploaded; submit it again, or put the "
        f"code back and let it go on: springtide resume {job_id}"
    )


def tell_no_secrets(job_id: str) -> str:
    """Why a job waits for its owner after a take-over."""
    return (
        "its secrets are in the home of the server that took them, and this server has another home; set them in your "
        f"environment and let it go on: springtide resume {job_id}"
    )
