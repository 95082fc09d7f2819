"""Deciding that processes hang: from what is sampled of them, without touching them. Pure: the clock is an argument.

Three signs, from the surest: a process that is stopped (SIGSTOP); a job without a step whose processes use no
processor, which is what a blocked collective looks like; a job without a step for very long, whatever it does.
Before a job's first step only the first sign counts, for scripts may download or compile.
"""

from dataclasses import dataclass, field

#: Share of one processor below which a job's processes count as idle, all together.
IDLE = 0.02


@dataclass(frozen=True, slots=True)
class Patience:
    """How long each sign must last; the two without a stopped process also wait 10 and 20 of the longest gaps."""

    stopped_s: float = 3.0
    idle_s: float = 30.0
    silent_s: float = 900.0


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

    def check(
        self, samples: list[ProcessSample], stepped_s: float | None, longest_gap_s: float, now_s: float
    ) -> Hang | None:
        """The hang that new samples show, if any; `stepped_s` is when the last step was, None before the first."""
        self.update_stopped(samples, now_s)
        for name, since_s in self.stopped_since_s.items():
            if now_s - since_s >= self.patience.stopped_s:
                return Hang("stopped", f"process {name} has been stopped (SIGSTOP) for {now_s - since_s:.0f} s")
        self.update_busy(samples, now_s)
        if stepped_s is None or self.busy_s is None:
            return None
        silent_s = now_s - stepped_s
        idle_s = now_s - max(self.busy_s, stepped_s)
        if idle_s >= max(self.patience.idle_s, 10 * longest_gap_s):
            return Hang("hung", f"no step for {silent_s:.0f} s and no processor used for {idle_s:.0f} s")
        if silent_s >= max(self.patience.silent_s, 20 * longest_gap_s):
            return Hang("hung", f"no step for {silent_s:.0f} s, the longest before was {longest_gap_s:.0f} s")
        return None

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
