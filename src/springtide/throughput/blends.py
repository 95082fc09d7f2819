"""Speed on several device types at once, from the speeds on each alone: for jobs known by their curves only.

Jobs whose logical workers and mini-batch seconds are known have an exact model instead (`heterogeneous`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, log2

from springtide.core.curves import Curve
from springtide.core.typed_curves import Mix, TypedCurves
from springtide.errors import ProfileError


@dataclass(frozen=True)
class CurveBlend:
    """Every device works at its own speed, loses what the job loses on so many devices, and D2 costs its kernels.

    rate(n) = e(N) * sum_i n_i s_i / slowdown, N = sum_i n_i, s_i the speed of one device of type i, and
    e(N) = min over the types used of T_i(N) / (N s_i), the efficiency on N devices; between measured shares it is
    linear in log2 N. Work is split in proportion to s_i, so that no device waits. `slowdown` is that of mixing alone.
    """

    curves: Mapping[str, Curve]
    slowdown: float = 1.0

    def __post_init__(self) -> None:
        if not (isfinite(self.slowdown) and self.slowdown >= 1.0):
            raise ProfileError(f"slowdown {self.slowdown} of mixed device types must be 1 or more")

    @property
    def most(self) -> int:
        """As many devices as were measured of each type."""
        return min(curve.shares[-1] for curve in self.curves.values())

    def rate(self, mix: Mix) -> float:
        """Steps per second; 0 on more devices than were measured of one of the types."""
        devices = sum(mix.values())
        efficiency = min(_interpolate(self._efficiencies[device_type], devices) for device_type in mix)
        return (
            efficiency * sum(count * self._singles[device_type] for device_type, count in mix.items()) / self.slowdown
        )

    @cached_property
    def _singles(self) -> dict[str, float]:
        return {device_type: curve.rates[0] / curve.shares[0] for device_type, curve in self.curves.items()}

    @cached_property
    def _efficiencies(self) -> dict[str, list[tuple[int, float]]]:
        """(share, efficiency) of each type."""
        return {
            device_type: [
                (share, rate / (share * self._singles[device_type]))
                for share, rate in zip(curve.shares, curve.rates, strict=True)
            ]
            for device_type, curve in self.curves.items()
        }


def _interpolate(points: list[tuple[int, float]], share: int) -> float:
    """The efficiency at a share: that of the first point below it, 0 above the last."""
    before = points[0]
    if share <= before[0]:
        return before[1]
    for after in points[1:]:
        if share <= after[0]:
            part = (log2(share) - log2(before[0])) / (log2(after[0]) - log2(before[0]))
            return before[1] + part * (after[1] - before[1])
        before = after
    return 0.0


def mix_curves(
    curves: Mapping[str, Curve], totals: Mix, slowdown: float | None = None, preferred: str = ""
) -> TypedCurves:
    """The speeds by type of a job on a cluster with these `totals`: D2 with a `slowdown` when mixed, D1 without one.

    Types whose smallest share the cluster cannot hold are left out.
    """
    usable = {
        device_type: curves[device_type].capped(totals[device_type])
        for device_type in totals
        if curves[device_type].shares[0] <= totals[device_type]
    }
    if not usable:
        least = {device_type: curves[device_type].shares[0] for device_type in totals}
        raise ProfileError(f"a job needs {least} devices at least; the cluster has {dict(totals)}")
    known = preferred if preferred in usable else ""
    if slowdown is None or len(usable) == 1:
        return TypedCurves(usable, movable=slowdown is not None, preferred=known)
    return TypedCurves(
        usable, CurveBlend({device_type: curves[device_type] for device_type in usable}, slowdown), True, known
    )
