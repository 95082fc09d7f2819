"""An error on one process ends its peers within seconds, and is told once.

A process that fails, or ends before its run has, leaves its reason in the store. Each of its peers looks there now and
then, from a thread of its own: in a collective that the failed process will never join, nothing else would wake it. A
process whose run is over says so there too, and is told if another goes on: all must end after the same step. So does
one that waits in a call of the script (`run.mean`): a process that has gone on without that call ends the run.
"""

import atexit
import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import TracebackType

import torch.distributed as dist

from springtide.errors import JobError, PeerLostError

FAILED_KEY = "failed"
ENDED_KEY = "ended"
GOING_ON_KEY = "going on"
ASKING_KEY = "asking"
POLL_S = 0.5
END_POLL_S, LONGEST_END_POLL_S = 0.005, 0.2
#: A peer ends only so long after the failed process, which is to be the first that anybody sees.
GRACE_S = 3.0
LONGEST = 500
#: What a store raises that has gone: ours, or torchrun's.
STORE_ERRORS = (PeerLostError, RuntimeError)


class Peers:
    """This process's word to the others, and its ear for theirs."""

    def __init__(
        self,
        store: dist.Store,
        name: str,
        is_over: Callable[[], bool],
        find_awaited: Callable[[], int] = lambda: -1,
        find_generation: Callable[[], int] = lambda: 0,
    ) -> None:
        self.store = store
        self.name = name
        self.is_over = is_over
        #: How far the others must come for what is under way here, in half steps; -1 if nobody is waited for.
        self.find_awaited = find_awaited
        #: Calls of the script that all processes make together: how many in which generation, and since when one waits,
        #: after how many half steps.
        self.find_generation = find_generation
        self.asked: Counter[int] = Counter()
        self.asking: tuple[float, int] | None = None
        self.told = False
        self.previous = sys.excepthook
        sys.excepthook = self.on_error
        self.ended = threading.Event()
        self.watcher = threading.Thread(target=self.watch, name="springtide-peers", daemon=True)
        self.watcher.start()
        atexit.register(self.on_exit)

    def on_error(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Tell the others what ended this process; it is shown here as ever, unless it is another's failure."""
        first = self.find_failure() if isinstance(error, PeerLostError) else None
        if first is not None:
            self.told = True
            self.say_why(*first)
            return
        self.tell(f"{kind.__name__}: {error}")
        self.previous(kind, error, trace)

    def on_exit(self) -> None:
        """Tell the others if this process ends before its run."""
        if not self.is_over():
            self.tell("it ended before the run did")
        self.ended.set()  # a thread that is inside the store when the interpreter ends would abort the process
        self.watcher.join(POLL_S)

    def tell(self, reason: str) -> None:
        """Leave a reason, once."""
        if self.told or self.is_over():
            return
        self.told = True
        try:
            self.store.set(FAILED_KEY, f"{self.name}\n{reason[:LONGEST]}")
        except STORE_ERRORS:  # the store has gone, and with it whoever would read this
            return

    def find_failure(self) -> tuple[str, str] | None:
        """The process that failed first and its reason, if it is another one."""
        try:
            if not self.store.check([FAILED_KEY]):
                return None
            name, _, reason = self.store.get(FAILED_KEY).decode().partition("\n")
        except STORE_ERRORS:
            return None
        return None if name == self.name else (name, reason)

    def watch(self) -> None:
        """End this process when another has failed."""
        while not self.is_over() and not self.ended.wait(POLL_S):
            if (first := self.find_failure()) is not None:
                self.end(*first)
                return
            self.tell_going_on()
            self.tell_asking()
            if said := self.find_asking(self.find_awaited()):
                self.on_error(JobError, JobError(said), None)
                sys.stderr.flush()
                os._exit(JobError.exit_code)

    def end(self, name: str, reason: str) -> None:
        """End this process after a moment, for whatever it waits for will not come."""
        time.sleep(GRACE_S)
        if self.is_over():
            return
        self.say_why(name, reason)
        os._exit(PeerLostError.exit_code)

    @contextlib.contextmanager
    def ask(self, reached: int) -> Iterator[None]:
        """Make a call of the script's that all processes make together, after so many half steps."""
        self.asked[self.find_generation()] += 1
        self.asking = time.monotonic(), reached
        try:
            yield
        finally:
            self.asking = None

    def tell_asking(self) -> None:
        """Leave word of a call of the script's that waits for others for long."""
        asking, generation = self.asking, self.find_generation()
        if asking is None or time.monotonic() - asking[0] < POLL_S:
            return
        with contextlib.suppress(*STORE_ERRORS):
            self.store.set(ASKING_KEY, f"{self.name}\n{generation}\n{self.asked[generation]}\n{asking[1]}")

    def find_asking(self, awaited: int) -> str:
        """What is wrong, if another waits in a call that this process has not made, and has gone on without."""
        try:
            if awaited < 0 or not self.store.check([ASKING_KEY]):
                return ""
            name, *numbers = self.store.get(ASKING_KEY).decode().split("\n")
        except STORE_ERRORS:
            return ""
        generation, count, reached = map(int, numbers)
        has_gone_on = awaited > reached and self.asked[generation] < count
        if name == self.name or generation != self.find_generation() or not has_gone_on:
            return ""
        return (
            f"{name} waits in run.mean, run.sum or shard.gather after step {(reached + 1) // 2}, and {self.name} has "
            "gone on without that call, which all processes make together. Call it on every process, not under "
            "`if run.is_main:`, and print what it gives there"
        )

    def end_together(self, reached: int, meeting: str, size: int, timeout_s: float) -> None:
        """Wait until all processes have ended their run; refuse the end if one of them goes on.

        `reached` counts half steps: 2n after n steps and what was agreed after the last of them, 2n - 1 before that.
        """
        until_s, wait_s, step = time.monotonic() + timeout_s, END_POLL_S, (reached + 1) // 2
        self.store.set(ENDED_KEY, f"{self.name}\n{reached}")
        count = self.store.add(f"{ENDED_KEY}/{meeting}", 1)
        while count < size:
            if self.store.check([GOING_ON_KEY]):
                raise JobError(self.store.get(GOING_ON_KEY).decode())
            if said := self.find_asking(2 * step + 1):  # the end lies behind all lines that follow the last step
                raise JobError(said)
            if time.monotonic() > until_s:
                raise PeerLostError(f"{self.name} ended its run, and another process did not within {timeout_s:g} s")
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_END_POLL_S)  # whoever is waited for needs the processor and the store
            count = self.store.add(f"{ENDED_KEY}/{meeting}", 0)

    def tell_going_on(self) -> None:
        """Leave word for a process that has ended its run, if this one goes on: it will wait for that one for ever."""
        try:
            if not self.store.check([ENDED_KEY]):
                return
            name, _, reached = self.store.get(ENDED_KEY).decode().partition("\n")
            if name == self.name or self.find_awaited() <= int(reached):
                return
            step = (int(reached) + 1) // 2
            self.store.set(
                GOING_ON_KEY,
                f"{name} ended its run after step {step}, and {self.name} takes the next one; whether a run goes on "
                "must be decided alike on every process: on what is the same on all, such as run.mean(...), not under "
                "`if run.is_main:`. For a limit of time call run.stop() before `for ... in step:`, where the first "
                "process's call counts for all",
            )
        except STORE_ERRORS:
            return

    def say_why(self, name: str, reason: str) -> None:
        """Say in a line which process failed; it has told the whole of it itself."""
        print(f"springtide: {self.name} ends because {name} has failed: {reason.splitlines()[0]}", file=sys.stderr)
        sys.stderr.flush()
