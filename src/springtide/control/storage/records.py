"""What the store remembers: jobs, events, offers, speeds and users, as frozen values in plain types.

A record says what is true and was decided; what follows from it (views, answers in words, tables) is made elsewhere.
All instants are platform time, in seconds since 1970.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from springtide.core.dependencies import AfterEnd
from springtide.core.job_file import JobFile
from springtide.core.job_states import ACTIVE, JobState


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is so beside the state: one of `JobCondition`."""

    kind: str
    reason: str
    sentence: str
    since_s: float


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The plan that certifies a promise: (start, share) pairs, the finish, and how long devices stay planned.

    On a platform of several device types `device_type` is the one it rests on; 0.1 also stored several, joined by `+`.
    """

    segments: tuple[tuple[float, int], ...]
    finish_s: float
    held_until_s: float
    device_type: str = ""


@dataclass(frozen=True, slots=True)
class AwaitedJob:
    """A job that another one waits for, and the end of it that is waited for."""

    id: str
    name: str
    end: AfterEnd


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """Where a job stands in the array of its sweep: which of how many, with which values."""

    id: str
    name: str
    number: int
    count: int
    #: Whether all of its jobs are promised, or none.
    whole: bool = False
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job: what was asked, what was answered, where it stands."""

    id: str
    name: str
    user: str
    state: JobState
    spec: JobFile
    submitted_s: float
    seq: int = 0
    archive: str = ""
    speed_key: str = ""
    deadline_s: float | None = None
    #: None until the script, or an earlier run of the same code, has said.
    total_steps: int | None = None
    logical_workers: int | None = None
    step: int = 0
    #: The step of the last checkpoint that is known to be saved.
    saved_step: int = 0
    reason: str = ""
    sentence: str = ""
    answered_s: float | None = None
    answer_by_s: float | None = None
    promised: bool = False
    plan: PlanRecord | None = None
    #: When it is expected to end as things stand; None while nobody knows.
    predicted_s: float | None = None
    conditions: tuple[Condition, ...] = ()
    #: The number of the last instruction for it, and of the last one whose end was worked in.
    generation: int = 0
    stopped_generation: int = 0
    devices: tuple[str, ...] = ()
    #: The device type it first ran on; below D2 it stays there.
    first_device_type: str = ""
    first_start_s: float | None = None
    finished_s: float | None = None
    exit_code: int | None = None
    rescales: int = 0
    faults: int = 0
    pause_s: float = 0.0
    lost_steps: int = 0
    #: Device-seconds held up to `settled_s`, and seconds during which it held any.
    served: float = 0.0
    ran_s: float = 0.0
    settled_s: float = 0.0
    #: Whether its promise lost the devices it rested on: it goes before all best-effort jobs, without a plan.
    endangered: bool = False
    #: Why a promise was missed; empty while it was not.
    missed: str = ""
    #: Whether the nearest offer is to be taken at once if it is declined.
    accept_offer: bool = False
    #: What was expected when it was answered, to be compared with what came.
    expected_s: float | None = None
    #: Whether it ends once its speed is measured: somebody asked for a plan.
    measure_only: bool = False
    #: What its submitter calls the request, so that it can be sent again without harm; and a hash of what was in it.
    idempotency_key: str | None = None
    request_hash: str = ""
    #: The id of its user, which no later user of the same name has.
    owner: str = ""
    #: The SHA-256 of the weights it ended with; empty while there are none.
    weights: str = ""
    #: The project of its user when it was submitted; empty where there was none.
    project: str = ""
    #: The jobs that it still waits for; it is put before the policy when they have ended as they should.
    waits_for: tuple[AwaitedJob, ...] = ()
    array_place: ArrayPlace | None = None
    #: When its last step was seen; None before the first.
    stepped_s: float | None = None
    #: What its devices have cost up to `settled_s`, and how much of that, and of `ran_s`, its limits no longer count.
    cost_usd: float = 0.0
    usd_before: float = 0.0
    #: Dollars per hour of the devices it was last given; None where nothing has a price.
    hourly_usd: float | None = None
    ran_before_s: float = 0.0
    #: The fingerprints of its inputs, by name, as they were last seen.
    inputs: dict[str, str] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Whether anything is still to happen to it."""
        return self.state in ACTIVE

    @property
    def unanswered(self) -> bool:
        """Whether its answer is still open: it may run meanwhile on devices that no promise needs."""
        return self.active and self.answer_by_s is not None and self.plan is None and not self.promised

    def condition(self, kind: str) -> Condition | None:
        """The condition of a kind, if it holds."""
        return next((one for one in self.conditions if one.kind == kind), None)

    def with_condition(self, kind: str, reason: str, sentence: str, now_s: float) -> "JobRecord":
        """The record with a condition that holds, since now if it is new."""
        old = self.condition(kind)
        new = Condition(kind, reason, sentence, now_s if old is None else old.since_s)
        return replace(self, conditions=(*(one for one in self.conditions if one.kind != kind), new))

    def without_condition(self, kind: str) -> "JobRecord":
        """The record without a condition; itself if that does not hold."""
        if self.condition(kind) is None:
            return self
        return replace(self, conditions=tuple(one for one in self.conditions if one.kind != kind))


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What became of a job: what keeping house and metrics ask of thousands of them, so no more than that."""

    id: str
    archive: str
    state: JobState
    finished_s: float | None = None
    promised: bool = False
    missed: str = ""
    answered_s: float | None = None
    expected_s: float | None = None
    rescales: int = 0
    pause_s: float = 0.0
    faults: int = 0
    lost_steps: int = 0

    @property
    def active(self) -> bool:
        """Whether anything is still to happen to it."""
        return self.state in ACTIVE


@dataclass(frozen=True, slots=True)
class JobLedgerEntry:
    """What a report counts of a job."""

    user: str
    state: JobState
    promised: bool
    missed: str
    served: float
    lost_steps: int
    finished_s: float | None
    answered_s: float | None
    expected_s: float | None
    cost_usd: float
    faults: int = 0


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Something that happened, in one sentence and as data."""

    at_s: float
    kind: str
    sentence: str
    job: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    seq: int = 0


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """Something that could not be worked in or stored: what it was, of which job, why not; kept for the operator.

    `body` and `error` are ASCII, whatever was in them, so that these can always be stored.
    """

    at_s: float
    kind: str
    job: str | None
    error: str
    body: str
    seq: int = 0


@dataclass(frozen=True, slots=True)
class PredictionRecord:
    """When a job was expected to end, as seen at an instant, and when at the speeds that its promise counts on."""

    job: str
    at_s: float
    predicted_s: float
    #: None while nothing is known of the slow end.
    late_s: float | None = None


@dataclass(frozen=True, slots=True)
class OfferRecord:
    """What would be accepted instead of a declined job: `kind` is deadline or work."""

    id: str
    job: str
    user: str
    kind: str
    deadline_s: float
    steps: int
    expires_s: float
    #: Whether devices are kept for it until it expires.
    reserved: bool = False
    #: open, accepted, expired or withdrawn
    state: str = "open"


@dataclass(frozen=True, slots=True)
class SpeedRecord:
    """What is known of how fast some code runs on devices of one type: points, start-up, pauses, announced work."""

    key: str
    #: share -> (steps measured, steps per second)
    points: dict[int, tuple[int, float]] = field(default_factory=dict)
    startup_s: float = 0.0
    pause_s: float | None = None
    total_steps: int | None = None
    steps_per_epoch: int | None = None
    logical_workers: int | None = None
    device_type: str = ""
    #: Whether a whole epoch has been seen, so that time outside steps is in the points.
    whole_epoch: bool = False


@dataclass(frozen=True, slots=True)
class UserRecord:
    """Who may submit: the hash of a token, and limits; None means the server's default.

    Names can be given again, ids cannot: the store makes one for a user who has none.
    """

    name: str
    token_hash: str
    admin: bool = False
    quota_device_s: float | None = None
    most_active: int | None = None
    run_as: str | None = None
    id: str = ""
    #: The group of users whose quota its jobs count against as well; empty: none.
    project: str = ""


@dataclass(frozen=True, slots=True)
class ProjectRecord:
    """A group of users, and what all of them together may have; None means no limit."""

    name: str
    quota_device_s: float | None = None
    most_active: int | None = None


@dataclass(frozen=True, slots=True)
class NoticeRecord:
    """Something to be told of a job: by which way (an entry of `notify`), what, and what came of trying."""

    job: str
    at_s: float
    way: dict[str, Any]
    body: dict[str, Any]
    #: open, sent or given_up
    state: str = "open"
    tries: int = 0
    #: When it is tried next.
    due_s: float = 0.0
    #: What went wrong at the last try.
    said: str = ""
    seq: int = 0


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """What a job has used while its devices stayed the same: device-seconds, and what they cost then."""

    job: str
    owner: str
    user: str
    project: str
    start_s: float
    end_s: float
    device_s: float
    usd: float


@dataclass(frozen=True, slots=True)
class InstructionRecord:
    """An instruction for the executor, stored before it is sent."""

    job: str
    generation: int
    key: str
    body: dict[str, Any] | None  # None: what is stored is no JSON
