"""What all processes do at a step boundary, decided by the process of rank 0.

Commands come from the supervisor, SIGTERM from anywhere, periodic checkpoints from the clock. How the others hear of
what was decided is in `words`.
"""

import enum
import os
import signal
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch.distributed as dist

from springtide.training.group.control_channel import Channel
from springtide.training.group.rosters import Roster, parse_roster
from springtide.training.settings import Settings

TERMINATE_KEY = "terminate"
TERMINATE_POLL_S = 0.5
JOINER_POLL_S = 0.005


class Action(enum.IntFlag):
    """What to do at a step boundary."""

    NOTHING = 0
    CHECKPOINT = 1
    RESCALE = 2
    TERMINATE = 4
    STOP = 8
    #: Compare the processes' states with each other.
    COMPARE = 16
    #: Copy the state into the memory of every host.
    COPY = 32

    @property
    def is_told(self) -> bool:
        """Whether somebody outside should hear of it at once."""
        return bool(self & ~Action.COMPARE)


@dataclass(frozen=True, slots=True)
class RosterUpdate:
    """A rescale asked for: the roster of a later generation."""

    generation: int
    roster: Roster


class Agreement:
    """The wishes of one process, and rank 0's decision over them."""

    def __init__(self, settings: Settings, channel: Channel, store: dist.Store | None) -> None:
        self.settings = settings
        self.channel = channel
        self.store = store
        self.change: RosterUpdate | None = None
        self.holds = {int(step) for step in settings.hold_at.split(",") if step}
        self.wants_checkpoint = False
        self.terminating = False
        self.forwarded = False
        self.polled_s = 0.0
        self.saved_s = time.monotonic()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.on_terminate)
        self.pid = os.getpid()

    def on_terminate(self, number: int, frame: FrameType | None) -> None:
        """Remember SIGTERM; the next step boundary acts on it. A second one ends the process at once."""
        self.terminating = True
        self.restore_sigterm()
        if os.getpid() != self.pid:  # a process that the script has forked, as of a Pool, which ends its own by SIGTERM
            signal.raise_signal(number)

    def restore_sigterm(self) -> None:
        """Give SIGTERM its usual meaning back: the run is over, or was asked to end and may be stuck."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def decide(self, roster: Roster, step: int, stopping: bool, writing: bool) -> Action:
        """Rank 0's decision for the boundary after `step`; while a checkpoint is written none by time is begun."""
        # Only rank 0 reads commands and clocks; the others do what its header says, at the same boundary. Whatever each
        # process decided for itself here could differ, and they would wait for each other for ever.
        action = Action.STOP if stopping else Action.NOTHING
        while (command := self.channel.poll()) is not None:
            action |= self.read_command(command)
        if step in self.holds:
            action |= self.hold(step, roster)
        # A change waits, over several boundaries, until its joiners are ready: the others train on meanwhile.
        if self.change is not None and self.are_joiners_ready(self.change, roster):
            action |= Action.RESCALE
        if self.is_terminated():
            action |= Action.TERMINATE
        # One that was asked for by its step is saved at that step on any disk: training waits for the one before it.
        if self.is_due_by_step(step) or ((self.wants_checkpoint or self.is_due_by_time()) and not writing):
            self.wants_checkpoint = False
            action |= Action.CHECKPOINT
        return action

    def hold(self, step: int, roster: Roster) -> Action:
        """Wait for the supervisor's `go`, and for the joiners of a rescale it asks for meanwhile."""
        action = Action.NOTHING
        self.channel.send("held", step=step)
        while (command := self.channel.wait())["do"] != "go":
            action |= self.read_command(command)
        while self.change is not None and not self.are_joiners_ready(self.change, roster):
            time.sleep(JOINER_POLL_S)
        self.polled_s = 0.0  # whatever happened meanwhile is to be seen now
        return action

    def read_command(self, command: dict[str, Any]) -> Action:
        """What a command asks for at once; a rescale waits for its joiners."""
        if command["do"] == "rescale":
            self.change = RosterUpdate(int(command["generation"]), parse_roster(command["roster"]))
        return {"checkpoint": Action.CHECKPOINT, "stop": Action.STOP, "terminate": Action.TERMINATE}.get(
            command["do"], Action.NOTHING
        )

    def are_joiners_ready(self, change: RosterUpdate, roster: Roster) -> bool:
        """Whether every new process has run its script up to `prepare` and waits for state."""
        joiners = [name for name in change.roster.names if name not in roster.names]
        if not joiners:
            return True
        assert self.store is not None
        return self.store.add(ready_key(change.generation), 0) >= len(joiners)

    def is_terminated(self) -> bool:
        """Whether this process or, by the store, another one was told to terminate."""
        if self.terminating or self.store is None:
            return self.terminating
        now_s = time.monotonic()  # asking the store is a round trip, too long for every step
        if now_s - self.polled_s >= TERMINATE_POLL_S:
            self.polled_s = now_s
            self.terminating = bool(self.store.check([TERMINATE_KEY]))
        return self.terminating

    def is_due_by_step(self, step: int) -> bool:
        """Whether a checkpoint of that very step was asked for."""
        every = self.settings.checkpoint_every_steps if self.settings.checkpoint_dir is not None else 0
        return bool(every) and step % every == 0

    def is_due_by_time(self) -> bool:
        """Whether a checkpoint is due because the last one is old."""
        every_s = self.settings.checkpoint_every_s if self.settings.checkpoint_dir is not None else 0.0
        return bool(every_s) and time.monotonic() - self.saved_s >= every_s

    def forward_termination(self) -> None:
        """Pass a SIGTERM of this process on, once."""
        if self.terminating and not self.forwarded and self.store is not None:
            self.forwarded = True
            self.store.set(TERMINATE_KEY, "1")


def ready_key(generation: int) -> str:
    """The store's count of joiners of a generation that wait for state."""
    return f"ready/{generation}"
