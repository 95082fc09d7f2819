"""How fast a job runs on how many devices.

A `Curve` maps the shares a job may hold to steps per second. It knows nothing of where the numbers come from
(`throughput/` measures, reads and fits them) nor which share is wise (policies decide).
"""

from bisect import bisect_right
from collections.abc import Container
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite, log

from springtide.errors import ProfileError


@dataclass(frozen=True)
class Curve:
    """Steps per second at each permitted share, shares ascending and positive.

    `low` holds the pessimistic end of the speed interval at the same shares; plans that back a promise use it.
    Where it is not given, the speeds are taken as exact.
    """

    shares: tuple[int, ...]
    rates: tuple[float, ...]
    low: tuple[float, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.shares or len(self.shares) != len(self.rates):
            raise ProfileError(
                f"curve has {len(self.shares)} shares and {len(self.rates)} speeds; it needs equally many, at least one"
            )
        if any(b <= a for a, b in zip((0, *self.shares), self.shares, strict=False)):
            raise ProfileError(f"curve shares {self.shares} must be positive and ascending")
        if not all(isfinite(rate) and rate > 0 for rate in (*self.rates, *self.low)):
            raise ProfileError(f"curve speeds {self.rates} must be positive numbers of steps per second")
        if self.low and len(self.low) != len(self.rates):
            raise ProfileError(f"curve has {len(self.low)} pessimistic speeds for {len(self.rates)} shares")

    def rate(self, share: int) -> float:
        """Steps per second at a share; 0 at share 0."""
        return self._rates[share]

    @cached_property
    def _rates(self) -> dict[int, float]:
        return {0: 0.0, **dict(zip(self.shares, self.rates, strict=True))}

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Shares worth holding: each faster than every smaller one. The last is the throughput peak."""
        best = 0.0
        worth = []
        for share, rate in zip(self.shares, self.rates, strict=True):
            if rate > best:
                worth.append(share)
                best = rate
        return tuple(worth)

    @property
    def peak(self) -> int:
        """The smallest share with the highest speed: growth beyond it never helps."""
        return self.levels[-1]

    @cached_property
    def scaling(self) -> float | None:
        """The p of a speed-up k^p from the smallest share to the peak; None of a job that cannot grow."""
        least, peak = self.levels[0], self.peak
        return log(self.rate(peak) / self.rate(least)) / log(peak / least) if len(self.levels) > 1 else None

    @cached_property
    def growths(self) -> tuple[tuple[float, int], ...]:
        """Speed-up and devices that each level adds to the one below; at the smallest share both are its devices."""
        least = self.levels[0]
        speeds = [0.0, *(least * self.rate(share) / self.rate(least) for share in self.levels)]
        shares = (0, *self.levels)
        return tuple(
            (speeds[level] - speeds[level - 1], shares[level] - shares[level - 1]) for level in range(1, len(shares))
        )

    def level_within(self, free: int) -> int:
        """The largest worthwhile share that `free` devices can hold; 0 if none."""
        position = bisect_right(self.levels, free)
        return self.levels[position - 1] if position else 0

    def share_within(self, free: int) -> int:
        """The largest permitted share that `free` devices can hold; 0 if none."""
        position = bisect_right(self.shares, free)
        return self.shares[position - 1] if position else 0

    def capped(self, devices: int) -> "Curve":
        """This curve without the shares above `devices`; all of them are kept out of reach if none fits."""
        kept = bisect_right(self.shares, devices)
        if kept == len(self.shares) or kept == 0:
            return self
        return Curve(self.shares[:kept], self.rates[:kept], self.low[:kept])

    def only(self, shares: Container[int]) -> "Curve":
        """This curve at these of its shares; there must be at least one."""
        kept = [position for position, share in enumerate(self.shares) if share in shares]
        rates, low = (tuple(speeds[position] for position in kept) for speeds in (self.rates, self.low or self.rates))
        return Curve(tuple(self.shares[position] for position in kept), rates, low if self.low else ())

    def scaled(self, factor: float) -> "Curve":
        """This curve on devices that are `factor` times as fast."""
        return Curve(
            self.shares, tuple(rate * factor for rate in self.rates), tuple(rate * factor for rate in self.low)
        )
