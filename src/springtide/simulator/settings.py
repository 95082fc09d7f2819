"""Where a trace is replayed: the cluster, how fast models run on it, and what a change of devices costs.

A Setting turns what a trace says of a job into a `Job`. Reading files belongs to `traces`, drawing jobs at random
to `workloads`.
"""

from dataclasses import dataclass, field
from math import inf

from springtide.core.curves import Curve
from springtide.core.devices import Cluster
from springtide.core.jobs import FREE, Job, JobId, Overhead
from springtide.errors import ProfileError
from springtide.throughput.profiles import Profiles

Speeds = tuple[tuple[int, float], ...]  # (share, steps per second), ascending


@dataclass(frozen=True, slots=True)
class Request:
    """What a trace says of one job.

    Its speed is that of a profile (model and batch), or `speeds` of its own; its work is `steps`, or `duration_s` at
    the requested devices.
    """

    id: str
    submit_s: float
    requested: int
    steps: float | None = None
    duration_s: float | None = None
    deadline_s: float = inf
    model: str = ""
    batch: int = 0
    speeds: Speeds = ()


@dataclass(slots=True)
class Setting:
    """A cluster with profiles and an overhead; jobs of one model and batch share one Curve object."""

    cluster: Cluster
    profiles: Profiles
    overhead: Overhead = FREE
    _curves: dict[object, tuple[Curve, Curve]] = field(init=False, repr=False, default_factory=dict)

    def build_job(self, request: Request, index: int) -> Job:
        """The job that a request stands for on this cluster."""
        measured, usable = self._find_curves(request)
        return Job(
            JobId(request.id),
            index,
            request.submit_s,
            count_steps(request, measured),
            usable,
            request.deadline_s,
            self._round_share(request.requested, usable),
            self.overhead,
        )

    def _find_curves(self, request: Request) -> tuple[Curve, Curve]:
        """The curve as measured, and without the shares that this cluster cannot hold."""
        key = request.speeds or (request.model, request.batch)
        if key not in self._curves:
            measured = self._read_curve(request)
            usable = measured.capped(self.cluster.total)
            if usable.shares[0] > self.cluster.total:
                raise ProfileError(
                    f"model {request.model!r} runs on {usable.shares[0]} devices or more; "
                    f"cluster {self.cluster.describe()} has {self.cluster.total}"
                )
            self._curves[key] = measured, usable
        return self._curves[key]

    def _read_curve(self, request: Request) -> Curve:
        if not request.speeds:
            return self.profiles.curve(request.model, request.batch)
        return Curve(*zip(*request.speeds, strict=True))

    def _round_share(self, requested: int, curve: Curve) -> int:
        """The share a rigid policy gives: as requested, or the next smaller one with a known speed.

        A request beyond the cluster stays as it is, for rigid policies to decline.
        """
        if requested > self.cluster.total:
            return requested
        return curve.share_within(requested) or curve.shares[0]


def count_steps(request: Request, curve: Curve) -> float:
    """The work of a request: its steps, or those done in its duration at the requested devices."""
    if request.steps is not None:
        return request.steps
    assert request.duration_s is not None, "a request has steps or a duration"
    return request.duration_s * curve.rate(curve.share_within(request.requested) or curve.shares[0])
