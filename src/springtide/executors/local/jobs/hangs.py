"""Deciding that processes hang: from what is sampled of them, without touching them. Pure: the clock is an argument.

Three signs, from the surest: a process that is stopped (SIGSTOP); a job without a step whose processes use no
processor, which is what a blocked collective looks like; a job without a step for very long, whatever it does.
Before a job's first step only the first sign counts, for scripts may download or compile. The second does not count
while a process is in the user's code between epochs, and neither of the two while one has said that it is busy.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from springtide.executors.local.jobs.exit_causes import describe_cut

#: Share of one processor below which a job's processes count as idle, all together.
IDLE = 0.02


@dataclass(frozen=True, slots=True)
class Patience:
    """How long each sign must last; the two without a stopped process also wait 10 and 20 of the longest gaps."""

    stopped_s: float = 3.0
    idle_s: float = 30.0
    silent_s: float = 900.0

    def given(self, patience_s: float | None) -> "Patience":
        """As the job file says how long the job may stand still, whatever it does then; None: as it is."""
        return self if patience_s is None else Patience(self.stopped_s, patience_s, patience_s)

    def after_hangs(self, count: int) -> "Patience":
        """Four times as long after each time that it ended and perhaps should not have, up to the longest."""
        return Patience(self.stopped_s, max(self.idle_s, min(self.idle_s * 4**count, self.silent_s)), self.silent_s)


@dataclass(frozen=True, slots=True)
class Standstill:
    """What is known of a job between two steps."""

    #: When the last step was; None before the first.
    stepped_s: float | None
    #: Longest time between two steps, in this start or an earlier one.
    longest_gap_s: float = 0.0
    #: Whether a process is in the user's code between epochs.
    is_outside: bool = False
    #: What a process has said it is busy with; empty: nothing.
    busy: str = ""


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """What a sample of one process shows."""

    name: str
    is_stopped: bool
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Hang:
    """A job that hangs: `stopped` or `hung`, and why we think so."""

    cause: str
    reason: str

    def describe(self, hosts: Collection[str]) -> str:
        """Why, and what to look at where processes that stand still are on several hosts; `hosts` are theirs."""
        return self.reason if self.cause == "stopped" else f"{self.reason}{describe_cut(hosts)}"


@dataclass
class Watch:
    """The signs seen of one job so far."""

    patience: Patience
    #: When each process was first seen stopped.
    stopped_since_s: dict[str, float] = field(default_factory=dict)
    #: The last step, or the last time that processors were used, with their count then.
    busy_s: float | None = None
    cpu_s: float = 0.0
    sampled_s: float = 0.0
    #: When a process was last known to be busy, or the job not yet to have made a step.
    free_s: float = 0.0

    def check(self, samples: list[ProcessSample], standstill: Standstill, now_s: float) -> Hang | None:
        """The hang that new samples show, if any."""
        self.update_stopped(samples, now_s)
        for name, since_s in self.stopped_since_s.items():
            if now_s - since_s >= self.patience.stopped_s:
                return Hang("stopped", f"process {name} has been stopped (SIGSTOP) for {now_s - since_s:.0f} s")
        self.update_busy(samples, now_s)
        if standstill.stepped_s is None or standstill.busy:
            self.free_s = now_s
            return None
        return self.find_silence(max(standstill.stepped_s, self.free_s), standstill, now_s)

    def find_silence(self, since_s: float, standstill: Standstill, now_s: float) -> Hang | None:
        """The hang of a job that has made no step since a moment, if it is one."""
        gap_s = standstill.longest_gap_s
        busy_s = since_s if self.busy_s is None else self.busy_s
        silent_s, idle_s = now_s - since_s, now_s - max(busy_s, since_s)
        if not standstill.is_outside and idle_s >= max(self.patience.idle_s, 10 * gap_s):
            why = f"no step for {silent_s:.0f} s and no processor used for {idle_s:.0f} s"
        elif silent_s >= max(self.patience.silent_s, 20 * gap_s):
            why = f"no step for {silent_s:.0f} s, the longest before was {gap_s:.0f} s"
        else:
            return None
        return Hang("hung", f'{why}; if it only waits: `patience: 10m` in the job file, or `with run.busy("..."):`')

    def update_stopped(self, samples: list[ProcessSample], now_s: float) -> None:
        """Remember since when processes are stopped."""
        self.stopped_since_s = {
            sample.name: self.stopped_since_s.get(sample.name, now_s) for sample in samples if sample.is_stopped
        }

    def update_busy(self, samples: list[ProcessSample], now_s: float) -> None:
        """Remember when processors were last used."""
        cpu_s = sum(sample.cpu_s for sample in samples)
        used_s = cpu_s - self.cpu_s
        if self.busy_s is None or used_s < 0 or used_s > IDLE * (now_s - self.sampled_s):
            self.busy_s = now_s
        self.cpu_s, self.sampled_s = cpu_s, now_s
