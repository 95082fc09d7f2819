"""Device types on a platform that has several: which of them a job may use, how fast it is there, who runs what.

Below D2 the bits depend on the type, so a job stays with the one it first ran on. At D2 it may change types and hold
several at once; its logical workers are then dealt out by the speed of each device. On a platform of one type none of
this has a part: jobs have one curve.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from springtide.control.scheduling import speeds
from springtide.control.scheduling.inventory import Inventory
from springtide.control.scheduling.speeds import Known
from springtide.control.storage.records import JobRecord, SpeedRecord
from springtide.core.curves import Curve
from springtide.core.job_file import JobFile
from springtide.core.typed_curves import Mix, TypedCurves
from springtide.throughput.heterogeneous import LogicalWorkers, fit_workers

MIXING = "D2"


@dataclass(frozen=True, slots=True)
class AskedBlend:
    """The speed of logical workers on several types, for the numbers of devices that a job asked for.

    `model` is what is expected; plans count on as much less as they do on the least certain of the types.
    """

    model: LogicalWorkers
    margin: float
    shares: tuple[int, ...]

    @property
    def most(self) -> int:
        """The largest number of devices it can hold."""
        return self.shares[-1]

    def rate(self, mix: Mix) -> float:
        """Steps per second on a mix; 0 on a number of devices that was not asked for."""
        return self.model.rate(mix) / self.margin if sum(mix.values()) in self.shares else 0.0


def list_device_types(record: JobRecord, site: Inventory) -> tuple[str, ...]:
    """The types a job may run on: those it names, of those there are; below D2 the one it first ran on."""
    if record.first_device_type and record.spec.get("determinism") != MIXING:
        return (record.first_device_type,)
    named = record.spec.get("device_types")
    if named is None:
        return site.device_types
    wanted = {device_type.lower() for device_type in named}
    return tuple(device_type for device_type in site.device_types if device_type in wanted)


def list_shares(job: JobFile, device_types: Sequence[str], workers: int, site: Inventory) -> dict[str, tuple[int, ...]]:
    """The numbers of devices of each type that a job may hold alone; types that have too few are left out."""
    found = {device_type: job.shares(workers, site.totals.get(device_type, 0)) for device_type in device_types}
    return {device_type: shares for device_type, shares in found.items() if shares}


def find_curves(job: JobFile, shares: Mapping[str, tuple[int, ...]], known: Known, promised: bool) -> dict[str, Curve]:
    """The speeds that a plan may count on, by type.

    Where nothing is promised, they are those expected (how sure each is must not decide between types), and an
    unmeasured type is guessed at.
    """
    if not job.elastic:
        return {device_type: Curve(some[-1:], (1.0,)) for device_type, some in shares.items()}
    measured = speeds.list_measured(known)
    read = speeds.plan_curve if promised else speeds.expect_curve
    curves = {
        device_type: read(measured[device_type], some)
        for device_type, some in shares.items()
        if device_type in measured
    }
    if promised and curves:
        return curves
    return {
        device_type: curves.get(device_type) or guess_curve(some, measured.values())
        for device_type, some in shares.items()
    }


def guess_curve(shares: tuple[int, ...], measured: Iterable[SpeedRecord]) -> Curve:
    """Speeds on a type that nobody has measured: those of the slowest type that was."""
    others = [speeds.expect_curve(speed, shares) for speed in measured]
    return min(others, key=lambda curve: curve.rates[0]) if others else speeds.guess_curve(shares)


def type_job(
    record: JobRecord, job: JobFile, known: Known, workers: int, site: Inventory, promised: bool
) -> TypedCurves:
    """A job's speeds by type, on several at once where its level allows that and its logical workers are counted."""
    device_types = list_device_types(record, site)
    shares = list_shares(job, device_types, workers, site) or dict.fromkeys(device_types or site.device_types[:1], (1,))
    curves = find_curves(job, shares, known, promised)
    moves = job.determinism == MIXING and job.elastic
    counted = workers < speeds.UNCOUNTED
    if not moves or not counted or len(curves) == 1:
        return TypedCurves(curves, movable=moves)
    asked = job.shares(workers, sum(site.totals[device_type] for device_type in curves))
    return TypedCurves(curves, blend_types(curves, known, workers, asked), movable=True)


def blend_types(curves: Mapping[str, Curve], known: Known, workers: int, asked: tuple[int, ...]) -> AskedBlend:
    """The speed on several types at once, of a job with these speeds on each alone."""
    expected = {device_type: expect_curve(known.get(device_type), curve) for device_type, curve in curves.items()}
    margins = [
        fast / slow
        for device_type, curve in curves.items()
        for fast, slow in zip(expected[device_type].rates, curve.rates, strict=True)
    ]
    return AskedBlend(fit_workers(workers, expected), max(margins), asked)


def deal_workers(typed: TypedCurves | None, site: Inventory, names: Sequence[str]) -> tuple[int, ...]:
    """The logical workers of each of these devices, more on faster ones; empty where they are to be spread evenly."""
    mix = site.count_types(names)
    is_whole = sum(mix.values()) == len(names)  # a device may have left the machine while the server was away
    if len(mix) == 1 or not is_whole or typed is None or not isinstance(typed.blend, AskedBlend):
        return ()
    deal = typed.blend.model.deal(mix)
    if deal is None:
        return ()
    left = {device_type: list(counts) for device_type, counts in deal.spread().items()}
    return tuple(left[site.type_of(name)].pop(0) for name in names)


def learn_mix(known: Known, workers: int, mix: Mix, steps: int, seconds: float) -> dict[str, SpeedRecord]:
    """The records of those types of a mix whose speed explains why its steps took as long as they did.

    What one device of the type would take for all workers is noted like a measurement of share 1.
    """
    curves = {
        device_type: speeds.expect_curve(known[device_type], (1, mix[device_type])[: mix[device_type]])
        for device_type in mix
    }
    before = fit_workers(workers, curves)
    after = before.learn(mix, seconds / steps)
    wrong = [device_type for device_type in mix if after.speeds[device_type] != before.speeds[device_type]]
    return {
        device_type: speeds.learn_point(
            known[device_type], 1, steps, steps * workers * after.speeds[device_type].seconds
        )
        for device_type in wrong
    }


def expect_curve(speed: SpeedRecord | None, curve: Curve) -> Curve:
    """Expected steps per second at the shares of a curve that plans count on; its own where nothing was measured."""
    return curve if speed is None or not speed.points else speeds.expect_curve(speed, curve.shares)


def expect_rates(speed: SpeedRecord | None, curve: Curve) -> dict[int, float]:
    """The same, by share."""
    expected = expect_curve(speed, curve)
    return dict(zip(expected.shares, expected.rates, strict=True))


def expect_mix(known: Known, typed: TypedCurves, mix: Mix) -> float:
    """Expected steps per second on devices of one type or several."""
    if len(mix) == 1:
        ((device_type, share),) = mix.items()
        return (
            expect_rates(known.get(device_type), typed.curves[device_type]).get(share, 0.0)
            if device_type in typed.curves
            else 0.0
        )
    return typed.blend.model.rate(mix) if mix and isinstance(typed.blend, AskedBlend) else 0.0
