"""The board as values that a template draws: rows on one axis, lanes of devices, the load of the cluster.

Pure: made of the API's document and what was asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from springtide.client.board_replies import BoardInfo, BoardJobInfo, LanesInfo, OpenOfferInfo
from springtide.core.durations import parse_span, show_span
from springtide.core.job_states import JobState
from springtide.dashboard.drawings.axis import Axis, make_axis
from springtide.dashboard.drawings.lane_view import LaneGroup, build_lanes
from springtide.dashboard.drawings.shapes import Mark, TimeBar, Whisker, clip_steps, draw_steps, find_height

ROOM = 30.0  # pixels of a row for its bars
LOAD_ROOM = 44.0
PAGE_ROWS = 100
PASTS = ("15m", "1h", "6h", "1d", "7d")
USUAL_PAST_S = 6 * 3600.0
TITLES = {
    "at_risk": "At risk",
    "promised": "Promised",
    "offered": "Offers to take",
    "waiting": "Waiting for an answer",
    "best_effort": "Best effort",
    "ended": "Ended",
}
MARKS = {
    "faulted": "fault",
    "lost": "fault",
    "at_risk": "danger",
    "missed": "danger",
    "grows": "rescale",
    "shrinks": "rescale",
    "moves": "rescale",
    "suspended": "rescale",
}
MARK_WORDS = {
    "faulted": "a fault",
    "lost": "lost by the executor",
    "at_risk": "in danger",
    "missed": "deadline missed",
    "suspended": "gave its devices to others",
}
FEW_MARKS = 60


@dataclass(frozen=True, slots=True)
class BoardQuery:
    """What of the board is shown; stands in the address."""

    group: str = ""
    find: str = ""
    owner: str = ""
    past: str = ""
    page: int = 0

    @property
    def past_s(self) -> float | None:
        """How much of the past was asked for; None: what fits."""
        return parse_span(self.past, "past") if self.past else None

    def ask(self) -> dict[str, str]:
        """The same, as the API is asked."""
        told = {"group": self.group, "find": self.find, "owner": self.owner}
        paging = {"offset": str(self.page * PAGE_ROWS), "limit": str(PAGE_ROWS)}
        return {key: text for key, text in told.items() if text} | {"past_s": str(self.past_s or USUAL_PAST_S)} | paging

    def address(self, **changes: str | int) -> str:
        """The address of the board with something else chosen; a page is kept only if it is named."""
        told = {"group": self.group, "find": self.find, "owner": self.owner, "past": self.past, "page": 0} | changes
        query = urlencode({key: value for key, value in told.items() if value})
        return f"/?{query}" if query else "/"


def read_query(given: Mapping[str, str]) -> BoardQuery:
    """The query of an address; what makes no sense in it is left out."""
    group = given.get("group", "")
    page = given.get("page", "0")
    return BoardQuery(
        group if group in TITLES else "",
        given.get("find", "")[:100],
        given.get("owner", "")[:64],
        given.get("past", "") if given.get("past", "") in PASTS else "",
        int(page) if page.isascii() and page.isdigit() and len(page) < 5 else 0,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One job on the board."""

    job: BoardJobInfo
    tone: str
    past: list[TimeBar]
    plan: list[TimeBar]
    #: What the light bars say, and why they end elsewhere than the ring.
    plan_title: str
    marks: list[Mark]
    deadline: Mark | None
    whisker: Whisker | None
    offers: list[Mark]
    answer: Mark | None
    #: What is to be expected of it, and how that compares with its deadline.
    outlook: str
    margin: str
    summary: str
    progress: float | None


@dataclass(frozen=True, slots=True)
class Section:
    """The rows of one group."""

    group: str
    title: str
    count: int
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class BoardPage:
    """All that the template draws."""

    query: BoardQuery
    info: BoardInfo
    axis: Axis
    sections: list[Section]
    lanes: list[LaneGroup]
    load_past: list[TimeBar]
    load_plan: list[TimeBar]

    @property
    def away(self) -> int:
        """How many devices take no work."""
        return sum(len(group.lanes) for group in self.lanes if group.state != "ready")

    @property
    def pages(self) -> int:
        """How many pages the chosen jobs take."""
        return -(-self.info.count // PAGE_ROWS)


def build_page(info: BoardInfo, lanes: LanesInfo, query: BoardQuery, axis: Axis) -> BoardPage:
    """The board of a document, and of one of the devices on the same axis."""
    most = max((share for job in info.jobs for _, share in (*job.shares, *job.plan)), default=1)
    sections = []
    for group, title in TITLES.items():
        rows = [build_row(job, axis, most) for job in info.jobs if job.group == group]
        if rows:
            sections.append(Section(group, title, info.groups.get(group, len(rows)), rows))
    total = info.devices.total
    tones = {row.job.id: row.tone for section in sections for row in section.rows}
    return BoardPage(
        query,
        info,
        axis,
        sections,
        build_lanes(lanes.lanes, axis.past, tones),
        draw_steps(lanes.held, info.now_s, axis, LOAD_ROOM, total),
        draw_steps(clip_steps(info.planned, info.now_s), axis.end_s, axis, LOAD_ROOM, total),
    )


def find_axis(info: BoardInfo, query: BoardQuery) -> Axis:
    """The axis on which the shown jobs fit. Best effort ends when it may: alone it says how far to look ahead."""
    open_jobs = [job for job in info.jobs if job.group != "ended"]
    ends = [
        at_s
        for job in [job for job in open_jobs if job.group != "best_effort"] or open_jobs
        for at_s in (job.deadline_s, job.predicted_s, job.late_s, job.answer_by_s, *(o.deadline_s for o in job.offers))
        if at_s is not None
    ]
    oldest_s = min((job.started_s or job.submitted_s for job in info.jobs), default=info.now_s)
    return make_axis(info.now_s, ends, query.past_s, max(oldest_s, info.since_s))


def build_row(job: BoardJobInfo, axis: Axis, most: int) -> Row:
    """One job, drawn."""
    shares = clip_steps(job.shares, axis.start_s)
    ended_s = axis.now_s if job.finished_s is None else job.finished_s
    plan_end_s = job.plan_end_s or job.predicted_s or axis.now_s
    plan = clip_steps(job.plan, axis.now_s) if job.plan else hold_on(job, axis)
    return Row(
        job,
        find_tone(job),
        draw_steps(shares, ended_s, axis, ROOM, most),
        draw_steps(plan, max(plan_end_s, axis.now_s), axis, ROOM, most),
        tell_plan(job, axis.now_s),
        list_marks(job, axis),
        mark_deadline(job, axis),
        draw_whisker(job, axis),
        [Mark(axis.x(one.deadline_s), "offer", f"offer: {tell_offer(one)}", one.deadline_s) for one in job.offers],
        None if job.answer_by_s is None else Mark(axis.x(job.answer_by_s), "answer", "answer by", job.answer_by_s),
        tell_outlook(job, axis.now_s),
        tell_margin(job),
        tell_row(job, axis.now_s),
        None if not job.total_steps else min(1.0, job.step / job.total_steps),
    )


def hold_on(job: BoardJobInfo, axis: Axis) -> list[tuple[float, int]]:
    """Of a job without a plan: what it holds now, for as long as it is expected to run."""
    return [(axis.now_s, job.share)] if job.share and job.predicted_s is not None else []


def find_tone(job: BoardJobInfo) -> str:
    """The colour of a job: how its end lies to its deadline, also at the slow end of what is known."""
    if job.state is JobState.FAILED or job.met is False:
        return "risk"
    if job.group == "ended":
        return "done"
    if job.group == "at_risk":
        return "risk"
    if not job.promised or job.deadline_s is None:
        return "plain"
    end_s = job.late_s if job.late_s is not None else job.predicted_s
    return "tight" if end_s is not None and end_s > job.deadline_s else "safe"


def list_marks(job: BoardJobInfo, axis: Axis) -> list[Mark]:
    """What happened to it on this axis; of very many things the last."""
    shown = [(at_s, kind) for at_s, kind in job.marks if kind in MARKS and at_s >= axis.start_s]
    return [Mark(axis.x(at_s), MARKS[kind], MARK_WORDS.get(kind, kind), at_s) for at_s, kind in shown[-FEW_MARKS:]]


def mark_deadline(job: BoardJobInfo, axis: Axis) -> Mark | None:
    """The flag at its deadline; beyond the axis, an arrow at its end."""
    if job.deadline_s is None or job.deadline_s < axis.start_s:
        return None
    kind = "beyond" if axis.is_beyond(job.deadline_s) else "flag" if job.promised else "wish"
    left_s = job.deadline_s - axis.now_s
    when = f"in {show_span(left_s)}" if left_s >= 0 else f"{show_span(-left_s)} ago"
    return Mark(
        axis.x(job.deadline_s),
        kind,
        f"flag: its deadline, {'promised' if job.promised else 'asked for, not promised'}, {when}",
        job.deadline_s,
    )


def draw_whisker(job: BoardJobInfo, axis: Axis) -> Whisker | None:
    """When it is expected to end, up to the slow end of that."""
    if job.predicted_s is None or job.group == "ended":
        return None
    late_s = max(job.predicted_s, job.late_s or job.predicted_s)
    title = f"ring: expected to end in {show_span(max(0.0, job.predicted_s - axis.now_s))}"
    if late_s > job.predicted_s:
        slow = show_span(max(0.0, late_s - axis.now_s))
        title += f"; whisker: in {slow}, if it is only as fast as its promise counts on"
    is_gone = axis.is_beyond(job.predicted_s)
    return Whisker(axis.x(job.predicted_s), axis.x(late_s), axis.is_beyond(late_s), title, is_gone)


def tell_plan(job: BoardJobInfo, now_s: float) -> str:
    """What the light bars of a job stand for."""
    if job.plan_end_s is None:
        return "light bar: what it holds now, up to its expected end; nothing is kept for it"
    kept = show_span(max(0.0, job.plan_end_s - now_s))
    return f"light bar: devices that its plan keeps for it, for {kept}, should it be slow and get no others"


def tell_offer(offer: OpenOfferInfo) -> str:
    """What an offer grants, and for how much."""
    granted = "all of it, by then" if offer.kind == "deadline" else f"{offer.steps} steps by then"
    return granted if offer.cost_usd is None else f"{granted}, for at least ${offer.cost_usd:,.2f}"


def tell_outlook(job: BoardJobInfo, now_s: float) -> str:
    """What to expect of a job, in a few words."""
    if job.finished_s is not None:
        return f"{job.state} {show_ago(now_s - job.finished_s)}"
    if job.state is JobState.OFFERED and job.offers:
        return f"offer open {show_span(max(0.0, job.offers[0].expires_s - now_s))}"
    if job.answer_by_s is not None:
        return f"answer in {show_span(max(0.0, job.answer_by_s - now_s))}"
    if job.predicted_s is not None:
        return f"ends in {show_span(max(0.0, job.predicted_s - now_s))}"
    return {"probing": "being measured", "paused": "paused", "waitlisted": "waits"}.get(
        str(job.state), "when devices are free"
    )


def show_ago(seconds: float) -> str:
    """How long ago, in words."""
    return "just now" if seconds < 10 else f"{show_span(seconds)} ago"


def tell_margin(job: BoardJobInfo) -> str:
    """How its end lies to its deadline; of an offer, its price."""
    if job.state is JobState.OFFERED and job.offers and job.offers[0].cost_usd is not None:
        return f"from ${job.offers[0].cost_usd:,.2f}"
    if job.slack_s is None or not job.promised:
        return "" if job.promised or job.deadline_s is None else "not promised"
    if job.finished_s is not None and job.state is not JobState.SUCCEEDED:
        return ""
    return f"{show_span(job.slack_s)} to spare" if job.slack_s >= 0 else f"{show_span(-job.slack_s)} late"


def tell_row(job: BoardJobInfo, now_s: float) -> str:
    """The row in a sentence, for those who do not see the drawing."""
    held = f"{job.share} device{'' if job.share == 1 else 's'}" if job.share else "no devices"
    due = "" if job.deadline_s is None else f", {tell_due(job.deadline_s - now_s)}"
    margin = tell_margin(job)
    return f"{job.name}: {job.state} on {held}, {tell_outlook(job, now_s)}{due}{', ' + margin if margin else ''}"


def tell_due(left_s: float) -> str:
    """When a deadline is or was."""
    return f"due in {show_span(left_s)}" if left_s >= 0 else f"was due {show_span(-left_s)} ago"


__all__ = ["BoardPage", "BoardQuery", "build_page", "find_height", "read_query"]
