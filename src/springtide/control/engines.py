"""Where jobs run: this machine's processes, or nothing at all (`fake`), behind the one protocol of `executors`."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from springtide.control.homes import Home
from springtide.control.sites import Site, make_site
from springtide.errors import InputError
from springtide.executors.devices import Device, choose_alike
from springtide.executors.fake import Course, FakeExecutor, FakeJob
from springtide.executors.protocol import Event, Executor, Probe, Start

NAMES = ("local", "fake")
logger = logging.getLogger("springtide.control")


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


def open_engine(name: str, home: Home, devices: int | None, nodes: int = 1) -> Engine:
    """The engine of this name; `devices` is the number of CPU slots where there is no GPU."""
    if name == "fake":
        return Engine(PacedFake(), make_site("fake", [f"fake:{k}" for k in range(devices or 2)], nodes), lambda: None)
    if name != "local":
        raise InputError(f"unknown engine {name!r}; there are: {', '.join(NAMES)}")
    from springtide.executors.local import LocalExecutor

    executor = LocalExecutor(home.root, devices)
    return Engine(executor, site_devices(executor.devices(), nodes), executor.shutdown)


def site_devices(found: Sequence[Device], nodes: int = 1) -> Site:
    """The site of a machine's devices; those of a type other than the most frequent one are left out, with a word."""
    alike = choose_alike(found)
    left_out = [f"{device.name} ({device.type})" for device in found if device not in alike]
    if left_out:
        kind = alike[0].type
        logger.warning("jobs run on the %d devices of type %s; left out: %s", len(alike), kind, ", ".join(left_out))
    return make_site(alike[0].type, [device.name for device in alike], nodes)
