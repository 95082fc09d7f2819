"""What the lead is told of a start on a host where a process cannot be started."""

import errno
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.executors.conformance.trials import Behaviour, make_spec

from springtide.executors.hosts.host_agent import HostAgent, HostSettings
from springtide.executors.hosts.host_messages import EndStart, OpenStart, SpawnWorker, StartState


class BrokenProcesses:
    """Of a start whose processes cannot be started."""

    failure, torch_version, are_gone = "", "2.13.0", True

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.by_name: dict[str, Any] = {}

    def start(self, *order: object) -> None:
        raise self.error

    def connect_handlers(self, given: object) -> None:
        pass

    hold_output = connect_handlers

    def kill_all(self) -> None:
        pass

    def alive(self) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("error", "told", "is_hosts"),
    [
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "PermissionError", False),
        (KeyError("gpu:7"), "KeyError: 'gpu:7'", False),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "Too many open files", True),
    ],
    ids=["not for us", "no such device", "the host's own"],
)
def test_that_a_process_cannot_be_started_is_told_and_not_taken_back(
    tmp_path: Path, error: Exception, told: str, is_hosts: bool
) -> None:
    """The lead reads all that comes of one turn before it looks: a job whose failure is taken back begins for ever."""
    sent: list[Any] = []
    agent = HostAgent.__new__(HostAgent)
    agent.settings = HostSettings(tmp_path, "h1", state_dir=tmp_path)
    agent.disk, agent.starts, agent.leaving = None, {}, ""
    agent.memory = SimpleNamespace(open=lambda order, now_s: {})  # type: ignore[assignment]
    agent.connection = SimpleNamespace(send=sent.append, is_crowded=False)  # type: ignore[assignment]
    place: Any = SimpleNamespace(open_with=lambda job, spec, private: BrokenProcesses(error))
    agent.place = place
    agent.obey(OpenStart("open", "s", "job", make_spec(tmp_path, Behaviour()), {}))
    agent.obey(SpawnWorker("spawn", "s", "p0", "gpu:7", {}, ("gpu:7",)))
    agent.starts["s"].tick(time.monotonic(), 1.0, is_unfit=False)
    agent.obey(EndStart("kill", "s"))
    agent.starts["s"].tick(time.monotonic(), 1.0, is_unfit=False)
    states = [one for one in sent if isinstance(one, StartState)]
    assert states and all(told in state.failure and state.is_hosts is is_hosts for state in states)
    assert states[-1].gone
    assert bool(agent.leaving) is is_hosts, "a host with a trouble of its own leaves"
