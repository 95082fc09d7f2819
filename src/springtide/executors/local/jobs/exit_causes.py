"""What the exit codes of a job's processes mean: done, lost, or the user's own fault. Pure.

A process that lost its peer fails too, so one that was killed explains the failures of all others; and among failures
the first one heard of explains the rest.
"""

import signal
from collections.abc import Mapping
from dataclasses import dataclass

#: Signals by which a process kills itself; any other came from outside.
OWN_SIGNALS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGILL)
#: How the training runtime ends after SIGTERM, as shells report it.
TERMINATED = 128 + signal.SIGTERM
#: Wrong input, as our own errors and argparse report it: trying again cannot help.
WRONG_INPUT = 2


@dataclass(frozen=True, slots=True)
class ExitCause:
    """How a job's processes ended. `word` is finished, killed, store_lost, crashed, early_exit or no_init."""

    word: str
    process: str = ""
    code: int = 0
    #: Whether starting again may help.
    can_retry: bool = False

    def describe(self) -> str:
        """Who was lost, and how."""
        if self.word == "store_lost":
            return "the process that holds the job's store was lost"
        return f"process {self.process} {describe_code(self.code)}"


@dataclass(frozen=True, slots=True)
class ExitEvidence:
    """What was heard of the processes before they ended."""

    finished: bool
    connected: bool
    elastic: bool


def judge(codes: Mapping[str, int]) -> ExitCause | None:
    """The verdict on codes in the order in which processes ended; None if nothing is wrong with them."""
    for name, code in codes.items():
        if is_from_outside(code):
            return ExitCause("killed", name, code, can_retry=True)
    for name, code in codes.items():
        if code != 0:
            return ExitCause("crashed", name, code, can_retry=code != WRONG_INPUT)
    return None


def judge_end(codes: Mapping[str, int], heard: ExitEvidence) -> ExitCause:
    """The verdict when no process is left.

    A gang without `springtide.init` is finished when all have ended with 0; others must have said that they are.
    """
    wrong = judge(codes)
    if wrong is not None:
        return wrong
    if heard.finished or (not heard.elastic and not heard.connected):
        return ExitCause("finished")
    return ExitCause("early_exit" if heard.connected else "no_init")


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
