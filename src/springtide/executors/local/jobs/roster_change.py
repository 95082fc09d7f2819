"""Which process runs where before and after a change of devices. Pure.

Processes on devices that stay keep running and keep their order, so that the fewest logical workers change hands;
new processes for the other devices follow them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from springtide.training.group.rosters import Roster, make_roster, spread


@dataclass(frozen=True, slots=True)
class RosterChange:
    """The roster after a change, and the device of each process that joins."""

    roster: Roster
    joiners: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Workers:
    """A job's logical workers: how many there are, and how many are asked for on each device, if anybody asked."""

    total: int
    asked: Mapping[str, int] = field(default_factory=dict)

    def spread_over(self, devices: Sequence[str]) -> tuple[int, ...]:
        """The workers of each device: as asked if that places all of them on all of these devices, else evenly.

        A mapping made for other devices, or for another number of workers than the script has, is not followed.
        """
        counts = tuple(self.asked.get(device, 0) for device in devices)
        return spread(self.total, len(devices)) if 0 in counts or sum(counts) != self.total else counts


def fit_devices(devices: Sequence[str], logical_workers: int | None) -> tuple[str, ...]:
    """The devices a job can use: one per logical worker at most, and one while their number is not known."""
    return tuple(devices[: 1 if logical_workers is None else logical_workers])


def name_from(first: int, count: int) -> list[str]:
    """So many process names, numbered from `first`."""
    return [f"p{number}" for number in range(first, first + count)]


def plan_change(held: Mapping[str, str], wanted: Sequence[str], workers: Workers, named: int) -> RosterChange:
    """The change from processes that hold devices (in rank order) to the wanted devices.

    New processes are named from `named` on. Invariant: every wanted device has one process, no other has any.
    """
    stay = [name for name, device in held.items() if device in wanted]
    kept = {held[name] for name in stay}
    fresh = [device for device in wanted if device not in kept]
    joiners = dict(zip(name_from(named, len(fresh)), fresh, strict=True))
    order = [*(held[name] for name in stay), *fresh]
    return RosterChange(make_roster(workers.spread_over(order), [*stay, *joiners]), joiners)
