"""What a server replies, as frozen values: made from the JSON documents of the API here and nowhere else.

Instants are datetimes in UTC, states are enums, lists are tuples. Fields that a newer server adds are ignored; the
document as it came stays in `.document`. Nothing here talks to a server.
"""

from dataclasses import field
from datetime import datetime

from springtide.client.reply_values import Reply, reply
from springtide.core.job_states import ENDED, JobCondition, JobState
from springtide.core.shared_types import Document


@reply
class ConditionInfo(Reply):
    """Something that is so beside a job's state, since when and why; a kind that is not known yet stays a text."""

    kind: JobCondition | str
    reason: str
    sentence: str
    since: datetime


@reply
class SegmentInfo(Reply):
    """A part of a plan: from an instant on, so many devices."""

    start: datetime = field(metadata={"key": "from"})
    start_in_s: float = field(metadata={"key": "from_in_s"})
    share: int


@reply
class OfferInfo(Reply):
    """What would be accepted instead: by `kind` a later deadline, or fewer steps. In a plan it has no id yet."""

    kind: str
    deadline: datetime
    deadline_in_s: float
    steps: int | None
    id: str = ""
    state: str = ""
    expires_at: datetime | None = None
    reserved: bool = False
    sentence: str = ""
    #: The least that taking it would cost; None where nothing has a price.
    cost_usd: float | None = None


@reply
class RentInfo(Reply):
    """What renting would cost a declined job: `offer`, `none`, `unknown`, or `working` while that is being found."""

    state: str
    sentence: str
    prices: str = ""
    plan: Document | None = None


@reply
class AwaitedInfo(Reply):
    """A job that another one waits for, and how it must end: `ok`, `failed` or `any`."""

    id: str
    name: str
    end: str


@reply
class PlaceInfo(Reply):
    """Where a job stands in an array: which of how many, with which values."""

    id: str
    name: str
    number: int
    count: int
    values: dict[str, str] = field(default_factory=dict)


@reply
class JobInfo(Reply):
    """A job: what was asked, what was answered, where it stands."""

    id: str
    name: str
    user: str
    state: JobState
    answer: str
    reason: str
    sentence: str
    submitted_at: datetime
    answered_at: datetime | None
    answer_by: datetime | None
    #: None: best effort.
    deadline: datetime | None
    deadline_in_s: float | None
    best_effort: bool
    promised: bool
    promised_finish: datetime | None
    predicted_finish: datetime | None
    predicted_finish_in_s: float | None
    #: Between the expected or actual end and the deadline.
    slack_s: float | None
    started_at: datetime | None
    finished_at: datetime | None
    #: Whether the promise was kept; None while that is open, or where nothing was promised.
    met: bool | None
    #: Why a promise was missed.
    missed: str | None
    step: int
    total_steps: int | None
    logical_workers: int | None
    share: int
    devices: tuple[str, ...]
    rescales: int
    faults: int
    pause_s: float
    lost_steps: int
    device_s: float
    exit_code: int | None
    conditions: tuple[ConditionInfo, ...]
    plan: tuple[SegmentInfo, ...]
    offers: tuple[OfferInfo, ...]
    rent: RentInfo | None
    code_hash: str
    #: The job file as it was submitted.
    spec: Document
    #: The SHA-256 of the weights it ended with.
    weights_sha256: str | None = None
    #: What its devices have cost up to now; None where nothing has a price.
    cost_usd: float | None = None
    #: What it will have cost if it ends when expected, on the devices it holds.
    expected_cost_usd: float | None = None
    #: When its plan ends, at the slow speeds that its promise counts on; it is expected to end sooner.
    planned_finish: datetime | None = None
    #: The group of users it counts for.
    project: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    #: The jobs it waits for.
    waits_for: tuple[AwaitedInfo, ...] = ()
    #: Where it stands in the array of a sweep.
    array: PlaceInfo | None = None
    #: The fingerprints of its inputs.
    inputs: dict[str, str] = field(default_factory=dict)
    #: By what a command names it: its name, or its id where there are others of that name; empty in lists.
    ref: str = ""

    def _repr_html_(self) -> str:
        from springtide.client.notebooks import show_job

        return show_job(self)

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it by itself."""
        return self.state in ENDED

    @property
    def has_saved(self) -> bool:
        """Whether there is a checkpoint to go on from, or will be once it has stopped; a gang has none."""
        return self.spec.get("elastic", True) and self.step > 0

    @property
    def open_offers(self) -> tuple[OfferInfo, ...]:
        """The offers that can be accepted."""
        return tuple(offer for offer in self.offers if offer.state == "open")


@reply
class ArrayInfo(Reply):
    """The jobs of a sweep."""

    id: str
    name: str
    count: int
    jobs: tuple[JobInfo, ...]


@reply
class WhyInfo(Reply):
    """Why a job is where it is: a reason code, a sentence, the facts behind it, and what can be done."""

    job: str
    name: str
    state: JobState
    reason: str
    sentence: str
    remedy: str
    facts: tuple[str, ...]
    rent: RentInfo | None


@reply
class EventInfo(Reply):
    """Something that happened, to a job or (`job` is None) to the platform."""

    seq: int
    at: datetime
    at_s: float
    kind: str
    job: str | None
    sentence: str
    data: Document


@reply
class MetricsInfo(Reply):
    """What `run.log` recorded at a step."""

    step: int
    metrics: dict[str, float] = field(default_factory=dict)
    #: When, in seconds since 1970.
    at_s: float | None = None


@reply
class AttemptInfo(Reply):
    """A start (`probe`, `start`), a change of devices (`resize`) or an end (`end`) of a job's processes."""

    kind: str
    attempt: int
    at_s: float
    step: int
    devices: tuple[str, ...]
    reason: str


@reply
class FileInfo(Reply):
    """A file of a checkpoint."""

    name: str
    size: int = field(metadata={"key": "bytes"})
    sha256: str


@reply
class CheckpointInfo(Reply):
    """A checkpoint that a server has, and the torch that wrote it."""

    step: int
    torch: str
    files: tuple[FileInfo, ...]


@reply
class KeptFileInfo(Reply):
    """A file that a job has left, by its path in `springtide ls`; of a checkpoint's, its hash too."""

    path: str
    size: int = field(metadata={"key": "bytes"})
    modified: datetime
    version: str
    sha256: str | None = None


@reply
class MachineInfo(Reply):
    """A machine on which processes of a running job are, with their numbers and its devices there."""

    host: str
    devices: tuple[str, ...]
    #: What CUDA_VISIBLE_DEVICES calls them; none for CPU slots.
    visible_devices: tuple[str, ...]
    pids: tuple[int, ...]


@reply
class InsideInfo(Reply):
    """Where a running job works, with which variables (its secrets too), as whom, and in which processes."""

    job: str
    name: str
    #: The server's machine; the job's are `machines`.
    host: str
    folder: str
    environment: dict[str, str] = field(repr=False)
    #: The system user of its processes; None: that of the server, whose number is `uid`.
    run_as: str | None
    uid: int
    pids: tuple[int, ...]
    machines: tuple[MachineInfo, ...] = ()


@reply
class ShareInfo(Reply):
    """How a job would do on so many devices: as measured, as planned with, and how long it takes alone."""

    share: int
    steps_per_s: float
    planned_steps_per_s: float
    alone_s: float


@reply
class PlanInfo(Reply):
    """What a submission would be told now; `probe` is the job that measures unknown code, if one does."""

    answer: str
    reason: str
    sentence: str
    deadline: datetime | None
    predicted_finish: datetime | None
    predicted_finish_in_s: float | None
    total_steps: int | None
    cost_usd: float | None
    shares: tuple[ShareInfo, ...]
    plan: tuple[SegmentInfo, ...]
    offers: tuple[OfferInfo, ...]
    probe: str | None = None

    def _repr_html_(self) -> str:
        from springtide.client.notebooks import show_plan

        return show_plan(self)


@reply
class DeviceInfo(Reply):
    """A device, the state of its node, and the job that holds it."""

    name: str
    node: str
    state: str
    device_type: str = field(metadata={"key": "type"})
    job: str | None
    job_name: str | None
    #: Of a node that takes no work: since when, by when its jobs are to have left, and how many have not.
    state_since_s: float | None = None
    leave_by_s: float | None = None
    leaving: int = 0


@reply
class NodeInfo(Reply):
    """A node whose state was changed."""

    node: str
    state: str


@reply
class ServerInfo(Reply):
    """What a server is, and how many jobs of each state it holds."""

    version: str
    policy: str
    archive_limit_bytes: int
    devices: int
    device_type: str
    jobs: dict[str, int]
    now: datetime


@reply
class UserInfo(Reply):
    """A user and their limits; the token of a new one, this once."""

    name: str
    admin: bool
    quota_device_s: float | None
    most_active: int | None
    run_as: str | None
    token: str | None = field(default=None, repr=False)
    #: No later user of the same name has it.
    id: str = ""
    #: The group whose quota their jobs count against as well.
    project: str | None = None


@reply
class UsageInfo(Reply):
    """What a user, a project or a job has used; `usd` is None where nothing has a price."""

    name: str
    device_h: float
    usd: float | None
    kept: int
    missed: int


@reply
class ProjectInfo(Reply):
    """A group of users and what they may have together."""

    name: str
    quota_device_s: float | None
    most_active: int | None
    users: tuple[str, ...] = ()


@reply
class NoticeInfo(Reply):
    """Something told of a job, or to be told: `open`, `sent` or `given_up`, and what went wrong."""

    event: str
    state: str
    tries: int
    problem: str | None
    way: Document
