"""All or nothing, and then one by one: how a step is taken whose parts may be poison.

Whatever can be marked, rolled back and committed is changed in transactions. A step is tried whole, because one commit
is cheap; if it cannot be taken or stored whole, it is undone and done again in small transactions, so that a failure
costs only the one at fault. An error that says nothing about the data (a locked database, a full disk) ends the step.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from springtide.control.storage.database.databases import is_unavailable
from springtide.errors import SpringtideError

T = TypeVar("T")
Mark = TypeVar("Mark")
logger = logging.getLogger("springtide.control")


class Undoable(Protocol[Mark]):
    """What transactions change."""

    def mark(self) -> Mark:
        """Everything that a transaction may change, as it is."""

    def roll_back(self, mark: Mark) -> None:
        """Be again as at a mark."""

    def commit(self) -> None:
        """Make what has changed since the last commit durable."""


def take_step(subject: Undoable[Mark], work: Callable[[bool], None]) -> None:
    """Do some work and commit it; if that fails, all again with `work(True)`, which commits each part by itself."""
    mark = subject.mark()
    try:
        work(False)
        subject.commit()
    except Exception as error:
        if is_unavailable(error):
            raise
        logger.exception("a step cannot be taken whole; it is taken again, one thing at a time")
        subject.roll_back(mark)
        work(True)
        subject.commit()


def attempt(
    subject: Undoable[Mark], action: Callable[[], None], singly: bool, on_failure: Callable[[Exception], None]
) -> None:
    """Do something; `singly` in a transaction of its own, and if that fails `on_failure` instead."""
    if not singly:
        action()
        return
    mark = subject.mark()
    try:
        action()
        subject.commit()
    except Exception as error:
        if is_unavailable(error):
            raise
        logger.exception("something cannot be worked in; it is put aside")
        subject.roll_back(mark)
        on_failure(error)
        subject.commit()


def try_call(subject: Undoable[Mark], function: Callable[[], Any], singly: bool) -> Any:
    """The value of a function, or the error it raised, which then has no effect."""
    mark = subject.mark()
    try:
        value = function()
        if singly:
            subject.commit()
        return value
    except Exception as error:
        if is_unavailable(error):
            raise
        if not isinstance(error, SpringtideError):
            logger.exception("a request failed inside the reconciler")
        subject.roll_back(mark)
        return error
