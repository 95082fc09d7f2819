"""What a server replies about the whole: the board, what was predicted of a job, what a plan would change.

Instants are seconds since 1970, as in the documents: charts compute with them.
"""

from dataclasses import field

from springtide.client.reply_values import Reply, reply
from springtide.core.job_states import JobState
from springtide.core.shared_types import Document


@reply
class OpenOfferInfo(Reply):
    """An offer that can be taken."""

    id: str
    kind: str
    deadline_s: float
    expires_s: float
    steps: int
    #: The least that taking it would cost; None where nothing has a price.
    cost_usd: float | None = None


@reply
class BoardJobInfo(Reply):
    """A job on the board: its past as (instant, share) pairs, its plan as such pairs up to an end."""

    id: str
    name: str
    user: str
    group: str
    state: JobState
    sentence: str
    promised: bool
    met: bool | None
    conditions: tuple[str, ...]
    submitted_s: float
    started_s: float | None
    finished_s: float | None
    deadline_s: float | None
    predicted_s: float | None
    late_s: float | None
    slack_s: float | None
    answer_by_s: float | None
    share: int
    step: int
    total_steps: int | None
    shares: tuple[tuple[float, int], ...]
    marks: tuple[tuple[float, str], ...]
    plan: tuple[tuple[float, int], ...]
    plan_end_s: float | None
    offers: tuple[OpenOfferInfo, ...]


@reply
class LaneInfo(Reply):
    """A device, and who held it: (from, to, job or None, its name)."""

    device: str
    node: str
    device_type: str = field(metadata={"key": "type"})
    state: str
    held: tuple[tuple[float, float, str | None, str], ...]
    #: What it costs in an hour; None where nothing has a price.
    usd_per_h: float | None = None
    #: Since when its node takes no work, if it takes none.
    state_since_s: float | None = None


@reply
class LanesInfo(Reply):
    """The devices with who held them, and (instant, how many were held on average from then on)."""

    lanes: tuple[LaneInfo, ...]
    held: tuple[tuple[float, float], ...]


@reply
class HelpInfo(Reply):
    """What could be done now: `undrain` a node, `accept` an offer, `cancel` a job."""

    kind: str
    sentence: str
    job: str = ""
    offer: str = ""
    node: str = ""


@reply
class PromiseCounts(Reply):
    """How the promises stand, and what became of the others."""

    open: int
    safe: int
    at_risk: int
    kept: int
    missed: int


@reply
class DeviceCounts(Reply):
    """Devices, those held now, and which part of their time was used since an instant."""

    total: int
    held: int
    used: float
    #: The beginning of the board's past, or the first instant from which something is known, if that is later.
    used_since_s: float = 0.0
    #: What those held now cost in an hour; None where nothing has a price.
    usd_per_h: float | None = None
    #: How many of them jobs without a promise hold, and device-hours such jobs have had since that instant.
    lent: int = 0
    lent_h: float = 0.0


@reply
class BoardInfo(Reply):
    """All jobs that a user may see on one axis of time, with the devices."""

    now_s: float
    since_s: float
    sentence: str
    helps: tuple[HelpInfo, ...]
    promises: PromiseCounts
    devices: DeviceCounts
    groups: dict[str, int]
    count: int
    owners: tuple[str, ...]
    jobs: tuple[BoardJobInfo, ...]
    lanes: tuple[LaneInfo, ...]
    #: (instant, devices that plans hold from then on).
    planned: tuple[tuple[float, int], ...]


@reply
class PredictionInfo(Reply):
    """When a job was expected to end, as seen at an instant; `late_s` at the speeds that its promise counts on."""

    at_s: float
    predicted_s: float
    late_s: float | None


@reply
class SpeedInfo(Reply):
    """What was measured of a job's code on some devices of one type."""

    device_type: str = field(metadata={"key": "type"})
    share: int
    steps: int
    steps_per_s: float


@reply
class PredictedSpeedInfo(Reply):
    """What is predicted of a job's code on so many devices, and the slower speed that promises count on there."""

    device_type: str = field(metadata={"key": "type"})
    share: int
    steps_per_s: float
    planned_steps_per_s: float


@reply
class HistoryInfo(Reply):
    """How many devices a job held since when, and the speeds of its code."""

    job: str
    shares: tuple[tuple[float, int], ...]
    speeds: tuple[SpeedInfo, ...]
    predicted_speeds: tuple[PredictedSpeedInfo, ...] = ()


@reply
class StandingInfo(Reply):
    """Devices, a plan and its finish."""

    share: int
    plan: tuple[tuple[float, int], ...]
    finish_s: float | None


@reply
class ChangeInfo(Reply):
    """A job that a submission would change; another user's has no id."""

    job: str | None
    name: str
    deadline_s: float | None
    before: StandingInfo
    after: StandingInfo


def read_changes(plan: Document) -> tuple[ChangeInfo, ...]:
    """What a plan would change, if that was asked."""
    return tuple(map(ChangeInfo.read, plan.get("changes", ())))
