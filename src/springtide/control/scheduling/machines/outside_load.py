"""Others on the platform's machines: what they take, since when, and how much slower speeds count for it.

The executor measures (`MachineLoaded`); here it becomes a fact in the store, so that a restarted server knows it, and
the slowdown of devices in the inventory, by which `live_jobs` makes the speeds that plans count on. Nothing else in
plans, policies or promises knows of it.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.sentences import tell_load
from springtide.control.scheduling.speeds import MEASURED_MARGIN
from springtide.control.storage.staging import Staging
from springtide.core.moments import tell_moments
from springtide.executors.protocol import MachineLoaded

FACT = "outside_load"


@dataclass(frozen=True, slots=True)
class OutsideLoad:
    """What others ask for of a machine's cores, since when they do so, and since when it is so much."""

    machine: str
    devices: tuple[str, ...]
    cores: float
    outside: float
    slowdown: float
    since_s: float
    changed_s: float

    @property
    def sentence(self) -> str:
        """The load in words."""
        return tell_load(self.machine, self.cores, self.outside, self.slowdown, self.since_s)


def read_loads(fact: Any) -> dict[str, OutsideLoad]:
    """The loads in a fact of the store, by machine."""
    stored: dict[str, dict[str, Any]] = fact or {}
    return {machine: OutsideLoad(**{**one, "devices": tuple(one["devices"])}) for machine, one in stored.items()}


def list_loads(inventory: Inventory, fact: Any) -> list[OutsideLoad]:
    """The loads of machines whose devices take work now."""
    return [load for load in read_loads(fact).values() if inventory.find_slowest(load.devices) > 1.0]


def check_loads(loads: Iterable[OutsideLoad], now_s: float) -> dict[str, Any]:
    """The loads as a check among those of readiness: how long the oldest has been there, and all of them in words."""
    found = list(loads)
    age_s = now_s - min((load.since_s for load in found), default=now_s)
    told = "; ".join(tell_moments(load.sentence, now_s) for load in found)
    return {"ok": True, "age_s": round(age_s, 3), "sentence": told}


def slow_inventory(inventory: Inventory, loads: Iterable[OutsideLoad]) -> Inventory:
    """The devices, as slow as these loads make them."""
    return replace(inventory, slowdowns={name: load.slowdown for load in loads for name in load.devices})


def restore_loads(inventory: Inventory, fact: Any, counts: bool) -> Inventory:
    """The devices, as slow as they were when the last server ended; `counts`: whether load is to count at all."""
    return slow_inventory(inventory, read_loads(fact).values() if counts else ())


def note_load(staging: Staging, world: PlatformWorld, event: MachineLoaded, counts: bool = True) -> bool:
    """Take over what others take of a machine; returns whether speeds count otherwise than before.

    A slowdown that is within what any measured speed is trusted to is none. Where load does not count it is kept all
    the same, or a server for which it counts again would find one that is over.
    """
    loads, now_s = read_loads(staging.read_fact(FACT)), staging.now_s
    before, is_loaded = loads.pop(event.machine, None), event.slowdown > MEASURED_MARGIN
    if before is None and not is_loaded:
        return False
    if is_loaded:
        since_s = now_s if before is None else before.since_s
        figures = event.cores, event.outside, event.slowdown
        load = loads[event.machine] = OutsideLoad(event.machine, event.devices, *figures, since_s, now_s)
        if before is None and counts:  # how much it is may change every few seconds: that is told where it is asked for
            staging.add_event(FACT, load.sentence, machine=event.machine, slowdown=event.slowdown)
    elif counts:
        assert before is not None
        sentence = f"others have let go of the processors of {before.machine or 'this machine'}; speeds count in full"
        staging.add_event("outside_load_over", sentence, machine=event.machine)
    staging.put_fact(FACT, {machine: asdict(one) for machine, one in loads.items()})
    if counts:
        world.slow_down(slow_inventory(world.inventory, loads.values()))
    return counts
