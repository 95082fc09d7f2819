"""Where jobs run: this machine's processes, or nothing at all (`fake`), behind the one protocol of `executors`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from springtide.control.homes import Home
from springtide.control.sites import Site, join_sites, make_site
from springtide.errors import InputError
from springtide.executors.devices import Device, make_cpu_slots, parse_slots
from springtide.executors.fake import Course, FakeExecutor, FakeJob
from springtide.executors.protocol import Event, Executor, Probe, Start

NAMES = ("local", "fake")


@dataclass(frozen=True, slots=True)
class Engine:
    """An executor, its devices, and how to end everything it started."""

    executor: Executor
    site: Site
    close: Callable[[], None]


class PacedFake(FakeExecutor):
    """The fake executor on real time: its clock moves as the wall's does, whenever it is asked for events."""

    def __init__(self, usual: FakeJob | None = None) -> None:
        super().__init__(now_s=time.time())
        self.usual = usual or FakeJob()
        self.last_s = time.monotonic()

    def begin(self, order: Start | Probe) -> Course:
        """A job that behaves as usual."""
        self.behaviours.setdefault(order.job, self.usual)
        return super().begin(order)

    def events(self, after: int) -> tuple[Event, ...]:
        """What happened up to now."""
        now_s = time.monotonic()
        self.advance(now_s - self.last_s)
        self.last_s = now_s
        return super().events(after)


def open_engine(name: str, home: Home, devices: str | None, nodes: int = 1) -> Engine:
    """The engine of this name; `devices` are the CPU slots where there is no GPU, a number or numbers by type.

    The devices of each type are cut into so many nodes.
    """
    if name == "fake":
        slots = [Device(f"{kind}:{k}", kind) for k, kind in enumerate(parse_slots(devices or "2", "fake"))]
        return Engine(PacedFake(), site_devices(slots, nodes), lambda: None)
    if name != "local":
        raise InputError(f"unknown engine {name!r}; there are: {', '.join(NAMES)}")
    from springtide.executors.local import LocalExecutor

    if devices is not None:
        make_cpu_slots(devices)  # refused here, not in the log of an agent that does not start
    executor = LocalExecutor(home.root, devices)
    return Engine(executor, site_devices(executor.devices(), nodes), executor.shutdown)


def site_devices(found: Sequence[Device], nodes: int = 1) -> Site:
    """The site of a machine's devices; those of each type are nodes of their own."""
    names: dict[str, list[str]] = {}
    for device in found:
        names.setdefault(device.type, []).append(device.name)
    return join_sites([make_site(kind, devices, nodes) for kind, devices in names.items()])
