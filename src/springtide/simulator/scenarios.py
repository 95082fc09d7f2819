"""Where a trace is replayed: the cluster, how fast models run on it, and what a change of devices costs.

A Scenario turns what a trace says of a job into a `Job`. Reading traces belongs to `traces`, drawing jobs at random
to `workloads`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from springtide.core.curves import Curve
from springtide.core.devices import Cluster
from springtide.core.jobs import FREE, Job, JobId, Overhead
from springtide.core.typed_curves import TypedCurves
from springtide.errors import InputError, ProfileError, TraceError
from springtide.throughput.blends import mix_curves
from springtide.throughput.heterogeneous import Level, LogicalWorkers
from springtide.throughput.tables.minibatches import COLUMNS, Minibatches, find_minibatches, read_minibatches
from springtide.throughput.tables.profiles import Profiles, read_each, read_profiles

StatedSpeeds = tuple[tuple[int, float], ...]  # (share, steps per second), ascending


@dataclass(frozen=True, slots=True)
class Request:
    """What a trace says of one job.

    Its speed is that of a profile (model and batch), or `speeds` of its own; its work is `steps`, or `duration_s` at
    the requested devices, or `samples` in steps of the batch, which is then the next larger one that has a profile.
    """

    id: str
    submit_s: float
    requested: int
    steps: float | None = None
    duration_s: float | None = None
    deadline_s: float = inf
    model: str = ""
    batch: int = 0
    speeds: StatedSpeeds = ()
    mixes: bool = False  # determinism D2: several device types at once
    preferred: str = ""
    samples: float | None = None
    user: str = ""


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """What a trace says of a job of logical workers; `guaranteed` is minP, `workers` maxP."""

    id: str
    submit_s: float
    application: str
    workers: int
    batch: int
    steps: float
    mixes: bool = False
    preferred: str = ""
    guaranteed: int = 0


@dataclass(slots=True)
class Scenario:
    """A cluster with the speeds on it and an overhead; jobs of one model and batch share one Curve object.

    `typed` are the profiles on each type of a mixed cluster; without them a job runs as `profiles` say whatever devices
    it holds. `minibatches` are for jobs of logical workers. `time_scale` stretches every step.
    """

    cluster: Cluster
    profiles: Profiles
    overhead: Overhead = FREE
    typed: Mapping[str, Profiles] = field(default_factory=dict)
    minibatches: Minibatches | None = None
    time_scale: float = 1.0
    _curves: dict[object, tuple[Curve, Curve]] = field(init=False, repr=False, default_factory=dict)
    _mixes: dict[object, TypedCurves] = field(init=False, repr=False, default_factory=dict)

    def build_job(self, request: Request | WorkerRequest, index: int) -> Job:
        """The job that a request stands for on this cluster."""
        if isinstance(request, WorkerRequest):
            return self._build_worker_job(request, index)
        if request.samples is not None:
            request = self._choose_batch(request, request.samples)
        if self.typed:
            return self._build_typed_job(request, index)
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
            request.user,
        )

    def _choose_batch(self, request: Request, samples: float) -> Request:
        """A request for so many samples as one for steps of the next larger batch with a profile, else the largest."""
        batches = sorted(batch for model, batch in self.profiles.curves if model == request.model)
        batch = next((one for one in batches if one >= request.batch), batches[-1] if batches else request.batch)
        return replace(request, batch=batch, steps=max(1.0, samples / batch), samples=None)

    def find_unmet(self, request: Request | WorkerRequest, job: Job) -> str:
        """What there is to say of a job that prefers a device type it cannot have here; empty if it can."""
        device_types = job.typed.types if job.typed is not None else self.cluster.device_types
        if request.preferred in ("", *device_types):
            return ""
        return (
            f"job {request.id!r} prefers device type {request.preferred!r}, but cluster {self.cluster.describe()} can "
            f"run it on {', '.join(device_types)} only, so it may have any of these; correct the row, or add the "
            "type to the cluster"
        )

    def _build_typed_job(self, request: Request, index: int) -> Job:
        typed, work = self._find_mixes(request)
        curve = typed.curves[typed.preferred or typed.fastest]
        return Job(
            JobId(request.id),
            index,
            request.submit_s,
            work,
            curve,
            request.deadline_s,
            self._round_share(request.requested, curve),
            self.overhead,
            request.user,
            typed=typed,
        )

    def _build_worker_job(self, request: WorkerRequest, index: int) -> Job:
        typed = self._find_workers(request)
        return Job(
            JobId(request.id),
            index,
            request.submit_s,
            request.steps,
            typed.curves[typed.preferred or typed.fastest],
            requested=request.workers,
            overhead=self.overhead,
            typed=typed if len(self.cluster.device_types) > 1 or request.guaranteed else None,
        )

    def _find_workers(self, request: WorkerRequest) -> TypedCurves:
        if self.minibatches is None:
            raise TraceError(
                f"application {request.application!r} needs its mini-batch seconds; give --profiles DIR with a table "
                f"{','.join(COLUMNS)}"
            )
        level = Level(request.mixes, request.preferred, request.guaranteed)
        key = (request.application, request.batch, request.workers, level)
        if key not in self._mixes:
            speeds = self.minibatches.speeds(request.application, request.batch, self.cluster.device_types)
            self._mixes[key] = LogicalWorkers(request.workers, speeds).type_curves(self.cluster.totals, level)
        return self._mixes[key]

    def _find_mixes(self, request: Request) -> tuple[TypedCurves, float]:
        """The speeds by type, and the work; a duration is meant on the preferred type, or the fastest."""
        curves = {device_type: self._measure(request, device_type) for device_type in self.cluster.device_types}
        key = (request.speeds or (request.model, request.batch), request.mixes, request.preferred)
        if key not in self._mixes:
            scaled = {device_type: curve.scaled(1.0 / self.time_scale) for device_type, curve in curves.items()}
            slowdown = 1.0 if request.mixes else None
            self._mixes[key] = mix_curves(scaled, self.cluster.totals, slowdown, request.preferred)
        typed = self._mixes[key]
        return typed, count_steps(request, curves[typed.preferred or typed.fastest])

    def _measure(self, request: Request, device_type: str) -> Curve:
        if request.speeds:
            return self._read_curve(request)
        try:
            return self.typed[device_type].curve(request.model, request.batch)
        except ProfileError as error:
            raise ProfileError(
                f"device type {device_type!r}: {error}; run `springtide profile` with its script on such a device, or "
                "leave the type out of the cluster"
            ) from None

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
            if self.time_scale != 1.0:
                usable = usable.scaled(1.0 / self.time_scale)
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


def load_scenario(cluster: Cluster, folder: Path | None, overhead: Overhead, time_scale: float = 1.0) -> Scenario:
    """A cluster with the speeds in a folder: a table of mini-batch seconds, or profiles of each device type."""
    if not 0 < time_scale < inf:
        raise InputError(
            f"time scale {time_scale} must be a positive number; 1 leaves step times as they were measured"
        )
    minibatches = find_minibatches(folder)
    if minibatches is not None:
        nothing = Profiles(str(minibatches), {})
        return Scenario(cluster, nothing, overhead, minibatches=read_minibatches(minibatches, time_scale))
    profiles = read_profiles(folder, cluster.device_types)
    several = len(cluster.device_types) > 1
    typed = read_each(folder, cluster.device_types) if several else {}
    return Scenario(cluster, profiles, overhead, typed, time_scale=time_scale)


def count_steps(request: Request, curve: Curve) -> float:
    """The work of a request: its steps, or those done in its duration at the requested devices."""
    if request.steps is not None:
        return request.steps
    assert request.duration_s is not None, "a request has steps or a duration"
    return request.duration_s * curve.rate(curve.share_within(request.requested) or curve.shares[0])
