"""Hosts that are lost while a job begins there: it starts again when they are back, and holds nothing until then."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.executors.conformance.trials import Behaviour, make_spec

from springtide.executors.hosts.host_hub import HostHub, KnownHost
from springtide.executors.hosts.host_messages import EndStart, Exited, OpenStart, SpawnWorker, StartState
from springtide.executors.local.discovery import Device
from springtide.executors.local.jobs.attempt import AgentContext
from springtide.executors.local.jobs.places import LocalPlace, ProcessHandlers
from springtide.executors.local.jobs.runner import JobRunner
from springtide.executors.local.journal import AssignedJob
from springtide.executors.local.json_connections import EventLoop
from springtide.executors.local.processes.worker_processes import STORE, WorkerProcess
from springtide.executors.protocol import Event, Faulted, Start, Stop, Stopped

LATER_S = 3600.0


class StillStore:
    """The store's process on the lead, which does nothing and is gone at once."""

    failure, are_gone = "", True

    def __init__(self) -> None:
        self.by_name = {STORE: WorkerProcess(STORE)}

    def connect_handlers(self, handlers: ProcessHandlers) -> None:
        pass

    start_store = kill_all = close = lambda self: None


class Stage:
    """A lead with two hosts that only listen, and a job on a device of each."""

    def __init__(self, folder: Path) -> None:
        nobody: Any = None
        self.hub = HostHub(LocalPlace(EventLoop(), nobody, folder, {}, {}, "python"), folder, "127.0.0.1", self.hear)
        local: Any = SimpleNamespace(open_for_store=lambda job, spec: StillStore())
        self.hub.local = local
        self.heard: list[Event] = []
        self.sent: dict[str, list[object]] = {"h1": [], "h2": []}
        for host in self.sent:
            self.join(host)
        context = AgentContext(self.hub, self.hub.devices, self.hear, lambda job, devices: self.hub.can_reach(devices))
        order = Start(job="job", generation=1, key="k", spec=make_spec(folder / "job", Behaviour()), devices=())
        self.runner = JobRunner(context, AssignedJob(order, 1, ("h1/cpu:0", "h2/cpu:0")))

    def hear(self, event: Event) -> None:
        self.heard.append(event)

    def join(self, host: str) -> None:
        device = Device(f"{host}/cpu:0", "cpu")
        caller: Any = SimpleNamespace(connection=SimpleNamespace(send=self.sent[host].append))
        self.hub.hosts[host] = KnownHost(host, "127.0.0.1", (device,), caller)
        self.hub.devices[device.name] = device
        self.hub.write_roll()

    def lose(self, host: str) -> None:
        self.hub.lose(self.hub.hosts[host], "it fell silent", time.monotonic())

    @property
    def start(self) -> Any:
        assert self.runner.attempt is not None
        return self.runner.attempt.processes

    def say_store(self) -> None:
        """The store serves."""
        self.runner.handle_message(self.start.by_name[STORE], {"event": "store", "address": "127.0.0.1:1"})

    def tick(self) -> None:
        """Time passes; hosts that are there end what they are told to."""
        self.runner.tick(time.monotonic() + LATER_S)
        for host, sent in self.sent.items():
            if self.runner.attempt is not None and EndStart("kill", self.start.name) in sent:
                self.start.hear(host, StartState("state", self.start.name, "", "", True, False))

    def kinds(self, host: str) -> list[type]:
        return [type(one) for one in self.sent[host]]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.runner.logs.close()
    made.hub.close()
    made.hub.loop.close()


@pytest.mark.parametrize("lost", [("h1",), ("h2",), ("h1", "h2")], ids=" and ".join)
def test_a_host_lost_while_the_store_starts_is_a_fault_and_the_job_waits_for_it(
    stage: Stage, lost: tuple[str, ...]
) -> None:
    stage.tick()
    for host in lost:
        stage.lose(host)
    stage.say_store()
    for _ in range(3):
        stage.tick()
    (fault,) = [event for event in stage.heard if isinstance(event, Faulted)]
    assert (fault.cause, stage.runner.phase, stage.runner.in_use) == ("killed", "waiting", set())
    for host in lost:
        stage.join(host)
    stage.tick()
    stage.say_store()
    assert stage.runner.phase == "starting" and stage.runner.in_use == {"h1/cpu:0", "h2/cpu:0"}


def test_a_job_whose_host_was_lost_while_it_began_can_be_stopped(stage: Stage) -> None:
    stage.tick()
    stage.lose("h2")
    stage.say_store()
    stop = Stop(job="job", generation=2, key="s")
    stage.runner.assigned = AssignedJob(stage.runner.assigned.order, 2, stage.runner.assigned.devices, stop)
    for _ in range(3):
        stage.tick()
    assert isinstance(stage.heard[-1], Stopped) and stage.runner.is_over


def test_a_host_that_a_start_has_left_and_that_was_lost_since_is_told_of_it_anew(stage: Stage) -> None:
    stage.tick()
    stage.say_store()
    stage.start.hear("h2", Exited("exited", stage.start.name, "p1", 0, False))
    stage.lose("h2")
    stage.sent["h2"] = []
    stage.join("h2")
    stage.start.start("p2", "h2/cpu:0", {}, ("h2/cpu:0",))
    assert stage.kinds("h2") == [OpenStart, SpawnWorker]
    assert stage.start.by_name["p2"].is_alive
    stage.start.kill_all()
    assert not stage.start.are_gone, "its new processes may still be there"


def test_a_host_that_was_away_when_a_start_first_needed_it_is_told_of_it_when_it_is_back(stage: Stage) -> None:
    stage.tick()
    stage.sent["h3"] = []
    stage.join("h3")
    stage.lose("h3")
    stage.start.start("p2", "h3/cpu:0", {}, ("h3/cpu:0",))
    assert not stage.start.by_name["p2"].is_alive
    stage.join("h3")
    stage.start.start("p3", "h3/cpu:0", {}, ("h3/cpu:0",))
    assert stage.kinds("h3") == [OpenStart, SpawnWorker]
    stage.start.kill_all()
    assert not stage.start.are_gone, "its process may still be there"
