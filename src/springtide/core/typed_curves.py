"""Devices of several types: which of them a job may hold, and how fast it runs on them.

`TypedCurves` stands beside the single `Curve` of a job on a mixed cluster. Where the speeds come from is not its
concern (`throughput/heterogeneous` and `throughput/blends` build them), nor which mix is wise (policies decide).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

from springtide.core.curves import Curve
from springtide.errors import ProfileError

Mix: TypeAlias = Mapping[str, int]  # device type -> how many; types without any are left out


class Blend(Protocol):
    """How fast a job runs on several types at once, on `most` devices in all."""

    @property
    def most(self) -> int:
        """The largest number of devices it can hold."""

    def rate(self, mix: Mix) -> float:
        """Steps per second on devices of two or more types; 0 where it cannot run on so many."""


@dataclass(frozen=True)
class TypedCurves:
    """What a job may do with each device type: `curves` holds its speeds on one type alone, in a fixed order of types.

    `blend` is its speed on several types at once, None where it keeps to one type at a time. A job that is not
    `movable` stays with the type it first ran on. Determinism D2 allows both, D1 neither. `guaranteed` devices (minP)
    may be taken from jobs that hold more than theirs; `preferred` is the type that was asked for by name, if any.
    """

    curves: Mapping[str, Curve]
    blend: Blend | None = None
    movable: bool = False
    preferred: str = ""
    guaranteed: int = 0

    def __post_init__(self) -> None:
        if not self.curves:
            raise ProfileError("a job needs a speed on at least one device type")
        if self.preferred and self.preferred not in self.curves:
            known = ", ".join(self.curves)
            raise ProfileError(f"preferred device type {self.preferred!r} has no speed; there are: {known}")
        if self.guaranteed > self.most:
            raise ProfileError(f"minP {self.guaranteed} exceeds maxP {self.most}; a job cannot hold more than maxP")

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The device types it can run on."""
        return tuple(self.curves)

    @cached_property
    def fastest(self) -> str:
        """The type that one device is fastest of; the first of equals."""
        return max(
            self.curves, key=lambda device_type: self.curves[device_type].rates[0] / self.curves[device_type].shares[0]
        )

    @cached_property
    def peak(self) -> float:
        """The highest speed on any one type."""
        return max(max(curve.rates) for curve in self.curves.values())

    @cached_property
    def most(self) -> int:
        """The largest number of devices it can hold (maxP)."""
        largest = max(curve.shares[-1] for curve in self.curves.values())
        return largest if self.blend is None else max(largest, self.blend.most)

    def rate(self, mix: Mix) -> float:
        """Steps per second on a mix; 0 on none, and where it must not or cannot run."""
        key = tuple([mix.get(device_type, 0) for device_type in self.types])
        found = self._rates.get(key)
        if found is None:
            found = self._rates[key] = self._find_rate(mix)
        return found

    @cached_property
    def _rates(self) -> dict[tuple[int, ...], float]:
        return {}

    def _find_rate(self, mix: Mix) -> float:
        used = {device_type: count for device_type, count in mix.items() if count}
        if not used or self.objection(used):
            return 0.0
        if len(used) > 1:
            assert self.blend is not None
            return self.blend.rate(used)
        ((device_type, count),) = used.items()
        curve = self.curves[device_type]
        return curve.rate(count) if count in curve.shares else 0.0

    def list_raises(self, mix: Mix, device_type: str) -> tuple[tuple[int, float], ...]:
        """(devices, rate) of every number of further devices of a type that runs faster than any fewer; ascending.

        At most as many as it holds now: growth further than twice is another step.
        """
        return self._list_steps(mix, device_type, 1)

    def list_cuts(self, mix: Mix, device_type: str) -> tuple[tuple[int, float], ...]:
        """(devices, rate) of every number of devices of a type that can be given back and leave a job running."""
        return self._list_steps(mix, device_type, -1)

    def _list_steps(self, mix: Mix, device_type: str, sign: int) -> tuple[tuple[int, float], ...]:
        key = (sign, device_type, *[mix.get(other, 0) for other in self.types])
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = tuple(self._find_steps(mix, device_type, sign))
        return found

    @cached_property
    def _steps(self) -> dict[object, tuple[tuple[int, float], ...]]:
        return {}

    def _find_steps(self, mix: Mix, device_type: str, sign: int) -> Iterator[tuple[int, float]]:
        held, size, best = mix.get(device_type, 0), sum(mix.values()), self.rate(mix)
        limit = min(size, self.most - size) if sign > 0 else held
        for devices in range(1, limit + 1):
            count = held + sign * devices
            rate = self.rate(
                {**mix, device_type: count} if count else {k: n for k, n in mix.items() if k != device_type}
            )
            if rate > best if sign > 0 else rate > 0:
                yield devices, rate
                best = max(best, rate)

    @cached_property
    def slowest(self) -> Curve:
        """The least speed among the types, share by share: what a policy that knows of no types can count on."""
        shared = set.intersection(*(set(curve.shares) for curve in self.curves.values()))
        shares = tuple(sorted(shared)) or self.curves[self.fastest].shares[:1]
        known = [curve for curve in self.curves.values() if set(shares) <= set(curve.shares)]
        return Curve(shares, tuple(min(curve.rate(share) for curve in known) for share in shares))

    def climb(self, totals: Mix) -> Iterator[Mix]:
        """The best mix of every size within `totals`: one type, or the fastest devices first where types may mix."""
        for device_type, curve in self.curves.items():
            yield from ({device_type: share} for share in curve.shares if share <= totals.get(device_type, 0))
        if self.blend is None:
            return
        mix: dict[str, int] = {}
        order = sorted(
            self.curves, key=lambda device_type: -self.curves[device_type].rates[0] / self.curves[device_type].shares[0]
        )
        for device_type in order:
            for _ in range(min(totals.get(device_type, 0), self.most - sum(mix.values()))):
                mix = {**mix, device_type: mix.get(device_type, 0) + 1}
                if len(mix) > 1:
                    yield mix

    def objection(self, mix: Mix, first_type: str = "") -> str:
        """Why a job must not run on a mix, after it first ran on type `first_type`; empty if it may."""
        unknown = [device_type for device_type in mix if device_type not in self.curves]
        if unknown:
            return f"it has no speed on {', '.join(unknown)}, only on {', '.join(self.types)}"
        if len(mix) > 1 and self.blend is None:
            return f"determinism D1 keeps it on one device type; {' and '.join(mix)} together need D2"
        if first_type and not self.movable and any(device_type != first_type for device_type in mix):
            return f"determinism D1 keeps it on {first_type}, where it started; a change of type needs D2"
        return ""
