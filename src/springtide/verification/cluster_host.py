"""The hosts of a Ray cluster for the runs of `verify`: processes are dealt out over them, and a kill ends a whole host.

There is no agent here either: this process is the lead.
"""

import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from springtide.errors import TrainingError
from springtide.executors.hosts.host_hub import HostHub
from springtide.executors.local.jobs.attempt import AgentContext, AttemptOptions
from springtide.executors.local.jobs.places import LocalPlace, find_host
from springtide.executors.protocol import Event
from springtide.executors.ray.ray_executor import KeeperProcess
from springtide.verification.scripted_jobs import Host, ScriptedRun

JOIN_S = 120.0
TURN_S = 0.05


class ClusterHost(Host):
    """What jobs of this process share: a hub, and hosts that a keeper has started on the nodes of a Ray cluster."""

    def __init__(self, address: str, shared: Path, workers: int) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="verify-", dir=shared))
        # One slot for each logical worker on every host: whichever are there, all processes find a place.
        self.keeper = KeeperProcess(address, self.home, str(workers))
        self.keeper.connect()
        place = LocalPlace(self.loop, self.forks, self.folder, {}, self.environment, sys.executable)
        self.hub = HostHub(place, self.home, str(self.keeper.connection["address"]), lambda event: None)
        self.keeper.go()
        self.expected = len(self.keeper.connection["nodes"])
        self.wait_for_hosts()

    def wait_for_hosts(self) -> None:
        """Wait until every node's host has joined."""
        until_s = time.monotonic() + JOIN_S
        while len(self.list_there()) < self.expected:
            if time.monotonic() > until_s:
                why = {**{name: said.get("said") for name, said in self.keeper.hosts.items()}, **self.hub.refused}
                raise TrainingError(f"{len(self.list_there())} of {self.expected} hosts joined: {why}")
            self.loop.turn(TURN_S)
            self.tick(time.monotonic())

    def list_there(self) -> list[str]:
        """The hosts that are there, by name."""
        return [name for name, known in sorted(self.hub.hosts.items()) if known.is_here]

    def name_devices(self, count: int) -> tuple[str, ...]:
        """So many devices, one after another of each host in turn, so that two processes are on two hosts."""
        hosts = sorted(self.hub.hosts)
        by_host = [[name for name in self.hub.devices if find_host(name) == host] for host in hosts]
        dealt = [name for turn in itertools.zip_longest(*by_host) for name in turn if name is not None]
        if len(dealt) < count:
            where = ", ".join(hosts)
            raise TrainingError(f"{count} processes for the {len(dealt)} devices of {where}; name less with --sizes")
        return tuple(dealt[:count])

    def make_context(self, emit: Callable[[Event], None], options: AttemptOptions) -> AgentContext:
        """What a runner needs: its processes run on the hosts, as soon as those are there."""
        return AgentContext(self.hub, self.hub.devices, emit, lambda job, devices: self.hub.can_reach(devices), options)

    def kill(self, run: ScriptedRun, rank: int) -> None:
        """End the whole host of a process; the keeper starts its agent again."""
        assert run.attempt is not None
        self.keeper.write(f"kill {find_host(run.attempt.ranked[rank].device)}")

    def make_folder(self) -> Path:
        """A new folder for the logs of one run, where all hosts see it."""
        self.runs += 1
        return self.home / f"run-{self.runs}"

    def tick(self, now_s: float) -> None:
        """Look after the hosts."""
        self.hub.tick(now_s)

    def close(self) -> None:
        """Send the hosts away."""
        self.keeper.write("dismiss")
        self.hub.close()
        self.keeper.close()
        super().close()
        shutil.rmtree(self.home, ignore_errors=True)
