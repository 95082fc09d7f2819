"""What an agent has of its machine, whether it decides for itself or runs the processes of a lead elsewhere.

A loop, a folder for sockets and pipes, fork servers, control groups where it may make them, and the look after all this
every second. What an agent before it has left is ended when it begins, and what it has started itself when it closes.
"""

import os
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from springtide.executors.local.agent_notes import end_if_replaced
from springtide.executors.local.daemon import turn_over
from springtide.executors.local.discovery import Device
from springtide.executors.local.jobs.environment import MARK, allow
from springtide.executors.local.jobs.places import PLAIN_JOB, LocalPlace, find_key
from springtide.executors.local.json_connections import EventLoop
from springtide.executors.local.paths import LOG, keep_from_cleaners, make_mark, make_runtime_folder
from springtide.executors.local.processes.cgroups import GroupLimits, open_groups
from springtide.executors.local.processes.fork_servers import ForkBudget, ForkPool
from springtide.executors.local.processes.stray_processes import end_orphans
from springtide.executors.local.processes.worker_processes import reap


class AgentMachine:
    """The part of this machine that belongs to the agent of a state folder."""

    def __init__(self, state_dir: Path, limits: GroupLimits, budget: ForkBudget | None = None) -> None:
        self.state_dir = state_dir
        self.loop = EventLoop()
        self.mark = make_mark(state_dir)
        self.groups = open_groups(self.mark, limits)
        #: How many processes an agent before this one had left.
        self.leftovers = reap(self.mark) + (self.groups.sweep() if self.groups is not None else 0)
        self.folder = make_runtime_folder(state_dir)
        keep_from_cleaners(self.folder)
        self.environment = {**allow(os.environ), MARK: self.mark}
        self.forks = ForkPool(self.loop, self.folder, self.environment, state_dir / LOG, budget)
        self.forks.kept = find_key(PLAIN_JOB, sys.executable)

    def warm(self) -> None:
        """Start the fork server that most jobs use."""
        assert self.forks.kept is not None
        self.forks.find(self.forks.kept)

    def make_place(self, devices: Mapping[str, Device], network: Mapping[str, str] | None = None) -> LocalPlace:
        """This machine as a place for processes on these devices; `network` is what they are told of it."""
        own, python = self.environment, sys.executable
        return LocalPlace(self.loop, self.forks, self.folder, devices, own, python, self.groups, network or {})

    def inspect(self, now_s: float, jobs: Collection[str], helpers: Collection[int] = ()) -> None:
        """End what hangs or is of no use any more; `jobs` are those that are here, `helpers` processes beside them."""
        end_if_replaced(self.state_dir, self.folder)
        turn_over(self.state_dir / LOG)
        self.forks.kill_stopped()
        self.forks.drop_unused(now_s, jobs)
        end_orphans({*self.forks.list_pids(), *helpers})  # what a fork server that was killed has left behind

    def close(self) -> None:
        """End everything that was started."""
        self.forks.close()
        reap(self.mark)
        if self.groups is not None:
            self.groups.close()
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)
