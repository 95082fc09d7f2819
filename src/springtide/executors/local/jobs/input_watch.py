"""A job's preparation, and what its inputs hold: reported when it is new, and looked at again while the job runs."""

import contextlib
from collections.abc import Callable, Mapping

from springtide.executors.local.jobs.preparing import Prepared, Preparing
from springtide.executors.protocol import JobSpec

INPUTS_S = 60.0  # between looks at what inputs hold


class InputWatch:
    """The preparation under way, if any, and what the inputs held when last seen."""

    def __init__(self, spec: JobSpec, report: Callable[[dict[str, str]], None]) -> None:
        self.spec = spec
        self.report = report
        self.preparing: Preparing | None = None
        self.fingerprints: dict[str, str] = {}
        self.due_s = 0.0

    @property
    def pids(self) -> tuple[int, ...]:
        """The process that prepares the job or looks at its inputs."""
        return () if self.preparing is None else (self.preparing.process.pid,)

    def begin(self) -> None:
        """Have the job's setup and inputs looked after."""
        self.preparing = Preparing(self.spec)

    def poll(self) -> Prepared | None:
        """What came of the preparation under way; None while there is none that has ended."""
        done = None if self.preparing is None else self.preparing.poll()
        if done is not None:
            self.preparing = None
        return done

    def note(self, fingerprints: Mapping[str, str], now_s: float) -> None:
        """Report what the inputs hold, if that is new."""
        self.due_s = now_s + INPUTS_S
        if fingerprints and fingerprints != self.fingerprints:
            self.fingerprints = dict(fingerprints)
            self.report(self.fingerprints)

    def look(self, now_s: float) -> None:
        """See now and then whether the inputs are what they were; what cannot be looked at is looked at again."""
        if self.preparing is not None:
            done = self.poll()
            if done is not None:
                self.note(done.fingerprints if not done.code else dict.fromkeys(self.fingerprints, done.code), now_s)
        elif self.fingerprints and now_s >= self.due_s:
            with contextlib.suppress(OSError, KeyError):
                self.preparing = Preparing(self.spec, setup=False)

    def kill(self) -> None:
        """End what is under way."""
        if self.preparing is not None:
            self.preparing.kill()
            self.preparing = None
