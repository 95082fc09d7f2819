"""One job as values that a template draws: its row on the axis, the trust chart, what happened by kind, its facts.

Pure: made of the API's documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import yaml

from springtide.client.board_replies import HistoryInfo, PredictionInfo
from springtide.client.replies import EventInfo, JobInfo, WhyInfo
from springtide.core.durations import show_span
from springtide.core.job_states import JobState
from springtide.dashboard.drawings.axis import Axis, Tick, make_axis
from springtide.dashboard.drawings.shapes import Mark, TimeBar, clip_steps, draw_steps

ROOM = 64.0
TRUST_WIDTH, TRUST_HEIGHT = 1000.0, 220.0
MOST_EVENTS = 400
MOST_CHANGES = 40
#: What events are about, in the order in which they are shown.
#: That somebody has put the receipt of the job to the proof.
VERIFICATIONS = ("verified", "not_verified")
TOPICS = {
    "Promise": ("submitted", "admitted", "waitlisted", "declined", "offered", "accepted", "at_risk", "safe", "missed"),
    "Devices": ("placed", "grows", "shrinks", "moves", "suspended", "resized", "started", "stopped", "resumed"),
    "Faults": ("faulted", "lost", "failed", "warned", "lagging", "in_step", "order_refused", "policy_failed"),
    "Measuring": ("probing", "probed", "probe_failed"),
    "Checkpoints": ("checkpoint_failing", "checkpointed"),
    "Bits": VERIFICATIONS,
}
OTHER = "Other"
RESUMABLE = (JobState.PAUSED, JobState.CANCELLED, JobState.FAILED)
CHANGES = ("placed", "grows", "shrinks", "moves", "suspended")


@dataclass(frozen=True, slots=True)
class Trust:
    """Predicted finishes over time: paths in a frame of 1000 by 220, and labels with their places in per cent."""

    line: str
    band: str
    diagonal: str
    deadline_y: float | None
    end: tuple[float, float] | None
    across: list[Tick]
    down: list[tuple[float, float]]
    verdict: str


@dataclass(frozen=True, slots=True)
class Topic:
    """What happened of one kind, the newest first."""

    title: str
    events: list[EventInfo]


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """Some devices of one type: what is predicted there, what promises count on, and what was measured, if it was."""

    device_type: str
    share: int
    predicted: float | None
    planned: float | None
    measured: float | None
    steps: int
    is_held: bool


@dataclass(frozen=True, slots=True)
class EndSign:
    """One of the ends that a drawing shows: the sign, its instant, and what it means in plain words."""

    kind: str
    at_s: float
    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class JobPage:
    """All that the template draws."""

    job: JobInfo
    why: WhyInfo
    now_s: float
    axis: Axis
    past: list[TimeBar]
    plan: list[TimeBar]
    marks: list[Mark]
    deadline: Mark | None
    predicted: Mark | None
    late: Mark | None
    offers: list[Mark]
    trust: Trust | None
    topics: list[Topic]
    #: Changes of its devices, the newest first, and how many older ones are left out.
    changes: list[EventInfo]
    changes_left: int
    #: Who has trained it again to see whether its receipt holds, the newest first.
    verifications: list[EventInfo]
    history: HistoryInfo
    speeds: list[SpeedRow]
    #: What the signs of its drawing stand for, each with its instant.
    ends: list[EndSign]
    file: str
    tone: str

    @property
    def progress(self) -> float | None:
        """Which part of its steps are done."""
        return None if not self.job.total_steps else min(1.0, self.job.step / self.job.total_steps)

    @property
    def counted_rate(self) -> float | None:
        """Steps per second that its expected end counts on from here."""
        job = self.job
        if not job.total_steps or job.predicted_finish is None or job.step >= job.total_steps:
            return None
        left_s = job.predicted_finish.timestamp() - self.now_s
        return (job.total_steps - job.step) / left_s if left_s > 0 else None

    @property
    def can_resume(self) -> bool:
        """Whether it would go on if told so."""
        return self.job.state in RESUMABLE


@dataclass(frozen=True, slots=True)
class JobSources:
    """The documents of one job."""

    job: JobInfo
    why: WhyInfo
    events: Sequence[EventInfo]
    predictions: Sequence[PredictionInfo]
    history: HistoryInfo
    now_s: float


def build_job_page(sources: JobSources) -> JobPage:
    """The page of a job."""
    job, now_s, history = sources.job, sources.now_s, sources.history
    deadline_s, predicted_s = read_instant(job.deadline), read_instant(job.predicted_finish)
    planned_s, finished_s = read_instant(job.planned_finish), read_instant(job.finished_at)
    late_s = sources.predictions[-1].late_s if sources.predictions and predicted_s is not None else None
    offered = [offer.deadline.timestamp() for offer in job.open_offers]
    ends = [at_s for at_s in (deadline_s, predicted_s, late_s, planned_s, finished_s, *offered) if at_s is not None]
    axis = make_job_axis((job.started_at or job.submitted_at).timestamp(), now_s, ends, finished_s)
    plan = [(segment.start.timestamp(), segment.share) for segment in job.plan]
    steps = clip_steps(plan, now_s) if plan else [(now_s, job.share)] if job.share and predicted_s else []
    most = max((share for _, share in (*history.shares, *plan)), default=1)
    past = draw_steps(clip_steps(history.shares, axis.start_s), finished_s or now_s, axis, ROOM, most)
    coming = draw_steps(steps, planned_s or predicted_s or now_s, axis, ROOM, most) if finished_s is None else []
    changes = [event for event in sources.events if event.kind in CHANGES][::-1]
    return JobPage(
        job=job,
        why=sources.why,
        now_s=now_s,
        axis=axis,
        past=past,
        plan=coming,
        marks=list_job_marks(sources.events, axis),
        deadline=place(
            axis, deadline_s, *(("flag", "deadline") if job.promised else ("wish", "deadline, not promised"))
        ),
        predicted=place(axis, predicted_s, "expected", "expected end"),
        late=place(axis, late_s, "late", "the latest that its promise counts on"),
        offers=[mark for at_s in offered if (mark := place(axis, at_s, "flag", "offered deadline"))],
        trust=draw_trust(sources.predictions, deadline_s, finished_s, now_s),
        topics=group_events(sources.events),
        changes=changes[:MOST_CHANGES],
        changes_left=len(changes[MOST_CHANGES:]),
        verifications=[event for event in sources.events if event.kind in VERIFICATIONS][::-1],
        history=history,
        speeds=list_speeds(history, job.share),
        ends=[] if job.ended else list_ends(job, predicted_s, late_s),
        file=yaml.safe_dump(job.spec, sort_keys=False, allow_unicode=True),
        tone=find_job_tone(job, late_s or predicted_s, deadline_s),
    )


def read_instant(moment: datetime | None) -> float | None:
    """A moment as seconds since 1970, if there is one."""
    return None if moment is None else moment.timestamp()


def list_speeds(history: HistoryInfo, held: int) -> list[SpeedRow]:
    """Predicted beside measured, by type and number of devices."""
    predicted = {(one.device_type, one.share): one for one in history.predicted_speeds}
    measured = {(one.device_type, one.share): one for one in history.speeds}
    rows = []
    for key in sorted({*predicted, *measured}):
        hoped, seen = predicted.get(key), measured.get(key)
        rows.append(
            SpeedRow(
                device_type=key[0],
                share=key[1],
                predicted=None if hoped is None else hoped.steps_per_s,
                planned=None if hoped is None else hoped.planned_steps_per_s,
                measured=None if seen is None else seen.steps_per_s,
                steps=0 if seen is None else seen.steps,
                is_held=key[1] == held,
            )
        )
    return rows


def list_ends(job: JobInfo, predicted_s: float | None, late_s: float | None) -> list[EndSign]:
    """The ends that a drawing shows: expected, slow, planned, promised; each with why it is another than the others."""
    signs = []
    if predicted_s is not None:
        signs.append(EndSign("ring", predicted_s, "expected end", "at the expected speed, on the devices it holds"))
    if late_s is not None and predicted_s is not None and late_s > predicted_s:
        signs.append(EndSign("whisker", late_s, "slow end", "if it is only as fast as its promise counts on"))
    if job.planned_finish is not None:
        meaning = "devices are kept for it until then, should it be slow and get no others"
        signs.append(EndSign("bar", job.planned_finish.timestamp(), "end of its plan", meaning))
    if job.deadline is not None:
        meaning = "the promise" if job.promised else "asked for, not promised"
        signs.append(EndSign("flag" if job.promised else "wish", job.deadline.timestamp(), "deadline", meaning))
    for offer in job.open_offers:
        signs.append(EndSign("flag offer", offer.deadline.timestamp(), "offer", "what would be promised instead"))
    return sorted(signs, key=lambda sign: sign.at_s)


def make_job_axis(begin_s: float, now_s: float, ends: Sequence[float], finished_s: float | None) -> Axis:
    """The whole life of a job, from its first device to its deadline."""
    if finished_s is None:
        return make_axis(now_s, ends, max(30.0, now_s - begin_s), begin_s)
    end_s = max(finished_s, *ends)
    span_s = max(1.0, end_s - begin_s)
    return Axis(begin_s - 0.02 * span_s, min(now_s, end_s + 0.04 * span_s), end_s + 0.04 * span_s)


def place(axis: Axis, at_s: float | None, kind: str, title: str) -> Mark | None:
    """A mark at an instant, if there is one on the axis."""
    if at_s is None or not axis.start_s <= at_s <= axis.end_s:
        return None
    return Mark(axis.x(at_s), kind, title, at_s)


def find_job_tone(job: JobInfo, end_s: float | None, deadline_s: float | None) -> str:
    """The colour of a job, as on the board."""
    if job.state is JobState.FAILED or job.met is False or any(one.kind == "at_risk" for one in job.conditions):
        return "risk"
    if job.ended:
        return "done"
    if not job.promised or deadline_s is None:
        return "plain"
    return "tight" if end_s is not None and end_s > deadline_s else "safe"


def list_job_marks(events: Sequence[EventInfo], axis: Axis) -> list[Mark]:
    """Rescales and faults on the axis."""
    kinds = {"faulted": "fault", "lost": "fault", "grows": "rescale", "shrinks": "rescale", "moves": "rescale"}
    shown = [event for event in events if event.kind in kinds and event.at_s >= axis.start_s]
    return [Mark(axis.x(event.at_s), kinds[event.kind], event.sentence, event.at_s) for event in shown[-200:]]


def group_events(events: Sequence[EventInfo]) -> list[Topic]:
    """Events by what they are about; of very many the newest."""
    topics = {kind: title for title, kinds in TOPICS.items() for kind in kinds}
    found: dict[str, list[EventInfo]] = {title: [] for title in (*TOPICS, OTHER)}
    for event in events[::-1]:
        found[topics.get(event.kind, OTHER)].append(event)
    return [Topic(title, some[:MOST_EVENTS]) for title, some in found.items() if some]


def draw_trust(
    predictions: Sequence[PredictionInfo], deadline_s: float | None, finished_s: float | None, now_s: float
) -> Trust | None:
    """When the job was expected to end, over the time at which that was said, beside its deadline."""
    if not predictions:
        return None
    last_s = max(predictions[-1].at_s + 1.0, finished_s if finished_s is not None else now_s)
    across = Axis(predictions[0].at_s, last_s, last_s)
    instants = [at_s for one in predictions for at_s in (one.predicted_s, one.late_s or one.predicted_s)]
    instants += [at_s for at_s in (deadline_s, finished_s) if at_s is not None]
    room_s = max(1.0, 0.08 * (max(instants) - min(instants)))
    down = Axis(min(instants) - room_s, now_s, max(instants) + room_s)
    steps = list(pairwise([*predictions, PredictionInfo({}, last_s, predictions[-1].predicted_s, None)]))
    low = [(at_s, one.predicted_s) for one, after in steps for at_s in (one.at_s, after.at_s)]
    high = [(at_s, one.late_s or one.predicted_s) for one, after in steps for at_s in (one.at_s, after.at_s)]
    frame = Frame(across, down)
    return Trust(
        frame.path(low),
        frame.path([*high, *low[::-1]]) + "Z",
        frame.path([(across.start_s, across.start_s), (across.end_s, across.end_s)]),
        None if deadline_s is None else round(100 - down.x(deadline_s), 2),
        None if finished_s is None else (across.x(finished_s), round(100 - down.x(finished_s), 2)),
        across.ticks,
        [(round(100 - tick.x, 2), tick.at_s) for tick in down.ticks],
        tell_trust(predictions, deadline_s, finished_s),
    )


@dataclass(frozen=True, slots=True)
class Frame:
    """Two axes of time: when something was said, and what."""

    across: Axis
    down: Axis

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        """The points as an SVG path."""
        places = [
            f"{self.across.x(at_s) * TRUST_WIDTH / 100:.1f} {TRUST_HEIGHT * (1 - self.down.x(value_s) / 100):.1f}"
            for at_s, value_s in points
        ]
        return "M" + "L".join(places)


def tell_trust(predictions: Sequence[PredictionInfo], deadline_s: float | None, finished_s: float | None) -> str:
    """Whether the prediction flinched, in a sentence."""
    first_s, worst_s = predictions[0].predicted_s, max(one.predicted_s for one in predictions)
    moved = f"It was predicted {len(predictions)} times; the latest end ever predicted was "
    told = moved + f"{show_span(abs(worst_s - first_s))} after the first prediction" if worst_s - first_s >= 1 else ""
    told = told or "No prediction was ever later than the first one"
    if deadline_s is not None:
        crossed = worst_s > deadline_s
        told += ", and it crossed the deadline" if crossed else ", and it never crossed the deadline"
    if finished_s is not None:
        error_s = finished_s - first_s
        told += f". It ended {show_span(abs(error_s))} {'after' if error_s > 0 else 'before'} the first prediction"
    return told + "."
