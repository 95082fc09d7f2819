"""The Ask page as values: a job file with some terms changed, the answer it would get, and what changes for others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from springtide.client.board_replies import ChangeInfo, StandingInfo, read_changes
from springtide.client.replies import JobInfo, PlanInfo, ShareInfo
from springtide.core.durations import show_span
from springtide.core.job_file import JobFile, check_job, parse_job_text
from springtide.dashboard.drawings.axis import Axis, make_axis
from springtide.dashboard.drawings.shapes import Mark, TimeBar, clip_steps, draw_steps
from springtide.errors import JobError

ROOM, LOW_ROOM = 56.0, 18.0
TERMS = ("deadline", "devices", "steps", "budget")
#: How the flag of the job looks that is asked about, and what it says: without and with a promise.
DEADLINES = (("wish", "deadline, which is not promised"), ("flag", "deadline"))
TONES = {"admitted": "safe", "waitlisted": "tight", "declined": "risk", "unknown": "plain"}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: the job whose code is used, a job file, and terms that go before those of the file."""

    base: str
    file: str
    terms: Mapping[str, str]

    def read_job(self) -> JobFile:
        """The job that is asked about; raises JobError."""
        document = parse_job_text(self.file, "the job file").model_dump(mode="json", exclude_defaults=True)
        for name in TERMS:
            text = self.terms.get(name, "").strip()
            document.pop(name, None)
            if text:
                document[name] = read_term(name, text)
        return check_job(document, "the job")


def read_term(name: str, text: str) -> Any:
    """A term as a job file has it."""
    if name == "steps" or (name == "devices" and text.isdigit()):
        try:
            return int(text)
        except ValueError:
            raise JobError(f"{name} {text!r} is no whole number") from None
    return text


def start_question(job: JobInfo) -> Question:
    """A question about a job as it was submitted."""
    spec = {key: value for key, value in job.spec.items() if key not in TERMS}
    terms = {name: str(job.spec[name]) for name in TERMS if name in job.spec}
    return Question(job.id, yaml.safe_dump(spec, sort_keys=False, allow_unicode=True), terms)


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """Another job, before and after."""

    change: ChangeInfo
    before: list[TimeBar]
    after: list[TimeBar]
    deadline: Mark | None
    sentence: str
    tone: str


@dataclass(frozen=True, slots=True)
class AskReply:
    """The answer, drawn."""

    plan: PlanInfo
    tone: str
    axis: Axis
    bars: list[TimeBar]
    deadline: Mark | None
    finish: Mark | None
    changes: list[ChangedRow]
    #: What it would change for others, in a sentence.
    effect: str
    #: The numbers of devices worth having: each faster than every smaller one.
    shares: list[ShareInfo]
    now_s: float


def build_reply(document: dict[str, Any], now_s: float) -> AskReply:
    """The reply to a question, from the API's plan."""
    plan, changes = PlanInfo.read(document), read_changes(document)
    deadline_s = None if plan.deadline is None else plan.deadline.timestamp()
    finish_s = None if plan.predicted_finish is None else plan.predicted_finish.timestamp()
    segments = [(segment.start.timestamp(), segment.share) for segment in plan.plan]
    ends = [at_s for at_s in (deadline_s, finish_s, *(list_ends(changes))) if at_s is not None]
    axis = make_axis(now_s, ends, 0.0, now_s)
    axis = Axis(now_s - 0.02 * (axis.end_s - now_s), now_s, axis.end_s)
    most = max([share for _, share in segments] + [find_most(one) for one in changes] + [1])
    return AskReply(
        plan,
        TONES.get(plan.answer, "plain"),
        axis,
        draw_steps(segments, finish_s or now_s, axis, ROOM, most),
        None if deadline_s is None else mark(axis, deadline_s, *DEADLINES[plan.answer == "admitted"]),
        None if finish_s is None else mark(axis, finish_s, "expected", "planned end"),
        [draw_change(one, axis, most) for one in changes],
        tell_effect(changes),
        keep_faster(plan.shares),
        now_s,
    )


def keep_faster(shares: Sequence[ShareInfo]) -> list[ShareInfo]:
    """The shares that are expected to be faster than every smaller one; the others only cost more."""
    kept: list[ShareInfo] = []
    for one in shares:
        if not kept or one.steps_per_s > kept[-1].steps_per_s:
            kept.append(one)
    return kept


def tell_effect(changes: Sequence[ChangeInfo]) -> str:
    """How many other jobs would change, and whether each still ends before its deadline."""
    if not changes:
        return "Nothing: no other job would hold other devices now, or end by another plan."
    promised = [one for one in changes if one.deadline_s is not None and one.after.finish_s is not None]
    late = [one.name for one in promised if find_change_tone(one) == "risk"]
    if late:
        kept = f"after its deadline would end: {', '.join(late)}"
    elif endless := [one.name for one in changes if find_change_tone(one) == "tight"]:
        kept = f"without a planned end would be: {', '.join(endless)}"
    elif promised:
        kept = "each still ends before its deadline" if len(promised) == len(changes) else "every promise still holds"
    else:
        kept = "nothing was promised to them" if len(changes) > 1 else "nothing was promised to it"
    return f"{len(changes)} other job{' changes' if len(changes) == 1 else 's change'}; {kept}."


def list_ends(changes: Sequence[ChangeInfo]) -> list[float | None]:
    """The ends of other jobs."""
    return [at_s for one in changes for at_s in (one.before.finish_s, one.after.finish_s, one.deadline_s)]


def find_most(change: ChangeInfo) -> int:
    """The largest share of a job before or after."""
    return max(share for one in (change.before, change.after) for share in (one.share, *(s for _, s in one.plan)))


def mark(axis: Axis, at_s: float, kind: str, name: str) -> Mark:
    """A mark on the axis; beyond it, an arrow. It says what it is and when."""
    told = f"{name}, in {show_span(max(0.0, at_s - axis.now_s))}"
    return Mark(axis.x(at_s), "beyond" if axis.is_beyond(at_s) else kind, told, at_s)


def draw_change(change: ChangeInfo, axis: Axis, most: int) -> ChangedRow:
    """Another job before and after, on the axis of the question."""
    name = f"deadline of {change.name}"
    deadline = None if change.deadline_s is None else mark(axis, change.deadline_s, "flag", name)
    before, after = draw_standing(change.before, axis, most), draw_standing(change.after, axis, most)
    return ChangedRow(change, before, after, deadline, tell_change(change), find_change_tone(change))


def draw_standing(standing: StandingInfo, axis: Axis, most: int) -> list[TimeBar]:
    """What a job would hold: its plan, or without one its devices now."""
    steps = clip_steps(standing.plan, axis.now_s) if standing.plan else [(axis.now_s, standing.share)]
    return draw_steps(steps, standing.finish_s or axis.end_s, axis, LOW_ROOM, most)


def tell_change(change: ChangeInfo) -> str:
    """What would change for another job, in words."""
    told = []
    before, after = change.before, change.after
    if before.share != after.share:
        told.append(f"{before.share} → {after.share} devices now")
    if before.finish_s is not None and after.finish_s is not None:
        later_s = after.finish_s - before.finish_s
        if abs(later_s) >= 1:
            told.append(f"planned end {show_span(abs(later_s))} {'later' if later_s > 0 else 'sooner'}")
    if after.finish_s is not None and change.deadline_s is not None:
        spare_s = change.deadline_s - after.finish_s
        was_so = before.finish_s is not None and (before.finish_s > change.deadline_s) == (spare_s < 0)
        side = "before" if spare_s >= 0 else "after"
        told.append(f"{'still ' if was_so else ''}{show_span(abs(spare_s))} {side} its deadline")
    if after.finish_s is None and change.deadline_s is not None:
        told.append("without a planned end")
    return ", ".join(told) or "another plan"


def find_change_tone(change: ChangeInfo) -> str:
    """The colour of another job as it would be: late, in time, without a planned end, or without a deadline."""
    if change.deadline_s is None:
        return "plain"
    if change.after.finish_s is None:
        return "tight"
    return "risk" if change.after.finish_s > change.deadline_s else "safe"
