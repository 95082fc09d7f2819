"""What a policy sees and what it says: Snapshot in, Decision out.

All values are frozen. Nothing in a Snapshot moves with the clock: progress is kept as (work left, rate, since), so
a Snapshot costs what changed, not what exists. A Decision is a difference: absent means keep.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any

from springtide.core.devices import Cluster, Devices
from springtide.core.jobs import Job, JobId
from springtide.core.typed_curves import Mix


class Status(StrEnum):
    """Where a job stands with respect to its answer."""

    PENDING = "pending"  # arrived, no answer yet
    WAITLISTED = "waitlisted"  # answer comes by `answer_by_s`
    OFFERED = "offered"  # declined with an open offer: its promise is a reservation until `answer_by_s`
    ADMITTED = "admitted"
    DECLINED = "declined"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Progress:
    """Work left at `since_s`, and the rate it falls at from `paused_until_s` on."""

    work_left: float
    rate: float = 0.0
    since_s: float = 0.0
    paused_until_s: float = 0.0

    def work_left_at(self, now_s: float) -> float:
        """Work left at a later instant."""
        running_s = now_s - max(self.since_s, self.paused_until_s)
        return self.work_left if running_s <= 0 else max(0.0, self.work_left - self.rate * running_s)

    @property
    def finish_s(self) -> float:
        """When the work ends if nothing changes; infinite without devices."""
        if self.rate <= 0:
            return inf
        return max(self.since_s, self.paused_until_s) + self.work_left / self.rate


@dataclass(frozen=True, slots=True)
class Segment:
    """From `start_s` on, hold `share` devices."""

    start_s: float
    share: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Shares over time until the work ends: segments ascending, the last one up to `finish_s`.

    The devices stay planned until `held_until_s` = finish + reserve, which covers one pause for a forced move.
    """

    segments: tuple[Segment, ...]
    finish_s: float
    held_until_s: float

    @property
    def first_start_s(self) -> float:
        """When it first holds devices."""
        return next((segment.start_s for segment in self.segments if segment.share), inf)

    def share_at(self, now_s: float) -> int:
        """The planned share at an instant."""
        share = 0
        if now_s >= self.held_until_s:
            return 0
        for segment in self.segments:
            if segment.start_s > now_s:
                break
            share = segment.share
        return share


@dataclass(frozen=True, slots=True)
class Promise:
    """A finish that was promised, and the plan that certifies it.

    On a cluster of several device types `device_type` is the one it rests on.
    """

    deadline_s: float
    plan: Plan
    device_type: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """What would be accepted instead: a later deadline for all the work, or less work by the same deadline."""

    deadline_s: float
    work: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a job is told: a status, a reason code and a sentence; for a waitlisted job when the answer comes.

    `promised` says whether an admission is the promise that the job ends by its deadline, `crowded` whether a refusal
    is for the promises of others: alone the job could end in time.
    """

    status: Status
    reason: str = ""
    sentence: str = ""
    answer_by_s: float = inf
    offers: tuple[Offer, ...] = ()
    promised: bool = False
    crowded: bool = False


class Cause(StrEnum):
    """Why the devices of a job change."""

    PLANNED = "planned"  # the plan behind its promise holds this share now
    TIGHT = "tight"  # its plan left it little slack: it goes before jobs without a deadline
    SPARE = "spare"  # devices that nobody needs now are worth more to it than they cost
    TURN = "turn"  # its turn among the jobs that nothing is promised
    YIELDS = "yields"  # `other` needs the devices
    MOVED = "moved"  # it makes room, so that `other` fits on neighbouring devices
    NEEDLESS = "needless"  # it ends in time, or as soon, with fewer
    DROPPED = "dropped"  # it can no longer be in time, and nothing is promised
    CLAIMED = "claimed"  # the devices' owner wants them back


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the devices of a job change: a cause, and the job it is for, which gains devices in the same decision."""

    cause: Cause
    other: JobId | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """Where one job stands; replaced, never changed.

    `served` are the device-seconds it held up to `progress.since_s`; `ran_s` the seconds it held any. Of a job with
    speeds by type, `mix` is what it holds of each and `first_device_type` the one it first ran on; of others they stay
    empty.
    """

    job: Job
    progress: Progress
    status: Status = Status.PENDING
    devices: Devices = ()
    share: int = 0
    promise: Promise | None = None
    answer_by_s: float = inf
    served: float = 0.0
    ran_s: float = 0.0
    first_start_s: float = inf
    mix: Mix | None = None
    first_device_type: str = ""

    def served_at(self, now_s: float) -> float:
        """Device-seconds held up to an instant."""
        return self.served + self.share * (now_s - self.progress.since_s)

    def ran_at(self, now_s: float) -> float:
        """Seconds during which it held devices, up to an instant."""
        return self.ran_s + (now_s - self.progress.since_s if self.share else 0.0)

    def used_at(self, now_s: float) -> tuple[float, float]:
        """Both up to an instant: device-seconds, and seconds."""
        return self.served_at(now_s), self.ran_at(now_s)


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened since the last call, each in order: finished first, then arrived."""

    finished: tuple[JobId, ...] = ()
    arrived: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The world as a policy sees it: unfinished, undeclined jobs in arrival order, and the devices.

    `free_masks` holds for each node the devices no job holds. `memory` and `cache` are what the policy's last decision
    left. A cache is never changed once it is returned (it may be shown again, to a decision that is only tried), and is
    None after anything but arrivals, finishes, decisions and progress that was seen has changed the world. `leaving`
    holds for each node the devices that their owner wants back from jobs; empty where there are none, as on a cluster
    of our own. `holders` says for each node who holds which devices of it; empty where nobody has counted that.
    """

    cluster: Cluster
    jobs: Mapping[JobId, JobView]
    free_masks: tuple[int, ...]
    changes: Changes = Changes()
    memory: Mapping[str, Any] = field(default_factory=dict)
    cache: Any = None
    leaving: tuple[int, ...] = ()
    holders: tuple[Mapping[JobId, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What changes: answers, promises, shares asked for, and (after placement) the devices.

    `shares` holds only jobs whose share changes. On clusters of several device types `mixes` takes its place: the whole
    mix of each job for which it changes, an empty one to take its devices away. `optional` names those of them that are
    growth into spare devices: placement leaves them as they are where growing would need a move. `allocations` is
    filled by placement, and may also hold jobs that are moved at an unchanged share. `reasons` says why, for each job
    whose devices change; `policies.decide` completes what a policy leaves out.
    """

    answers: Mapping[JobId, Answer] = field(default_factory=dict)
    promises: Mapping[JobId, Promise] = field(default_factory=dict)
    shares: Mapping[JobId, int] = field(default_factory=dict)
    mixes: Mapping[JobId, Mix] = field(default_factory=dict)
    optional: frozenset[JobId] = frozenset()
    allocations: Mapping[JobId, Devices] = field(default_factory=dict)
    reasons: Mapping[JobId, Reason] = field(default_factory=dict)
    wake_at_s: float = inf
    memory: Mapping[str, Any] | None = None
    cache: Any = None


#: A policy: what is to be changed now, from what there is.
Decide = Callable[[float, Snapshot], Decision]
