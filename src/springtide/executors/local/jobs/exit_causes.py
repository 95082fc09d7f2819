"""What the exit codes of a job's processes mean (done, lost, or the user's own fault), and when to start again. Pure.

A process that lost its peer fails too, so one that was killed explains the failures of all others; and among failures
the first one heard of explains the rest.
"""

import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from springtide.errors import PeerLostError

#: Signals by which a process kills itself; any other came from outside.
OWN_SIGNALS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGILL)
#: How the training runtime ends after SIGTERM, as shells report it.
TERMINATED = 128 + signal.SIGTERM
#: Wrong input, as our own errors and argparse report it: trying again cannot help.
WRONG_INPUT = 2
#: The training runtime has lost a peer: whoever ended first explains it, or a host that nobody has missed yet.
PEER_LOST = PeerLostError.exit_code
#: Seconds before the next start after faults in a row without a new step; the last one holds for all further.
BACK_OFF_S = (0.0, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class ExitCause:
    """How a job's processes ended.

    `name` is finished, out_of_memory, killed, store_lost, peer_lost, crashed, early_exit or no_init.
    """

    name: str
    process: str = ""
    code: int = 0
    #: Whether starting again may help.
    can_retry: bool = False

    def describe(self, hosts: Collection[str] = ()) -> str:
        """Who was lost, and how; `hosts` are those of the processes."""
        if self.name == "store_lost":
            return "the process that holds the job's store was lost"
        if self.name == "peer_lost":
            return f"process {self.process} lost its connection to another one{describe_cut(hosts)}"
        return f"process {self.process} {describe_code(self.code)}"


def describe_cut(hosts: Collection[str]) -> str:
    """What to look at when a connection is lost and no host is."""
    there = sorted(set(hosts))
    if len(there) < 2:
        return ""
    return (
        f", though hosts {', '.join(there)} all answer: if this comes again, they cannot reach each other; look at the "
        "network and firewalls between them, and at GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME; or drain one of them"
    )


@dataclass(frozen=True, slots=True)
class ExitEvidence:
    """What was said by the processes before they ended."""

    finished: bool
    connected: bool
    elastic: bool


def find_cause(codes: Mapping[str, int]) -> ExitCause | None:
    """The cause by codes in the order in which processes ended; None if nothing is wrong with them."""
    for name, code in codes.items():
        if is_from_outside(code):
            return ExitCause("killed", name, code, can_retry=True)
    for name, code in codes.items():
        if code not in (0, PEER_LOST):
            return ExitCause("crashed", name, code, can_retry=code != WRONG_INPUT)
    for name, code in codes.items():
        if code == PEER_LOST:
            return ExitCause("peer_lost", name, code, can_retry=True)
    return None


def find_end_cause(codes: Mapping[str, int], evidence: ExitEvidence) -> ExitCause:
    """The cause when no process is left.

    A gang without `springtide.init` is finished when all have ended with 0; others must have said so.
    """
    wrong = find_cause(codes)
    if wrong is not None:
        return wrong
    if evidence.finished or (not evidence.elastic and not evidence.connected):
        return ExitCause("finished")
    return ExitCause("early_exit" if evidence.connected else "no_init")


def is_from_outside(code: int) -> bool:
    """Whether somebody else ended the process: by a signal that is no fault of its own code."""
    return code == TERMINATED or (code < 0 and -code not in OWN_SIGNALS)


def describe_code(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


@dataclass
class Restarts:
    """The restarts of one job: all of them, and those in a row that led to no step beyond `best_step`."""

    best_step: int
    limit: int
    count: int = 0
    futile: int = 0

    def add_step(self, step: int) -> None:
        """Count a step; a new one means that the last restart was worth it."""
        if step > self.best_step:
            self.best_step, self.futile = step, 0

    @property
    def are_hopeless(self) -> bool:
        """Whether restarts have led nowhere too often."""
        return self.futile >= self.limit

    def add(self, now_s: float) -> float:
        """Count one more; returns when it may begin."""
        begins_s = now_s + BACK_OFF_S[min(self.futile, len(BACK_OFF_S) - 1)]
        self.count += 1
        self.futile += 1
        return begins_s
