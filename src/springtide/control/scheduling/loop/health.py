"""Whether a platform stands still: the last good step, the executor, the store, the disk, each with its age.

Written by the reconciler's thread, read by any: single values only, each true by itself.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from shutil import disk_usage
from typing import Any

from springtide.control.storage.database.databases import find_cause
from springtide.control.storage.leadership import Leadership
from springtide.control.storage.store import Store
from springtide.core.durations import show_span

STILL_S = 5.0  # without a good step; an idle platform makes two a second
LEAST_FREE_BYTES = 64 << 20


@dataclass(slots=True)
class Health:
    """When steps were good, and what is wrong since when; on the monotonic clock of this process."""

    stepped_s: float = field(default_factory=time.monotonic)
    failing: str = ""  # why the last step failed; empty after a good one
    failures: int = 0
    executor_lost: str = ""  # in words; empty while it answers
    executor_lost_s: float = 0.0
    outage: str = ""  # what the executor cannot do while jobs go on; empty: nothing
    outage_s: float = 0.0
    #: What else readiness rests on, by name, each told as `check` tells it.
    others: dict[str, Callable[[], dict[str, Any]]] = field(default_factory=dict)

    def note_step(self) -> None:
        """A step was good."""
        self.stepped_s, self.failing = time.monotonic(), ""

    def note_failure(self, error: BaseException) -> None:
        """A step has failed."""
        self.failing, self.failures = show_safely(error), self.failures + 1

    def note_executor(self, lost: str, waited_s: float = 0.0) -> None:
        """The executor answers, or what is wrong with it, and how long it has been waited for by now."""
        if lost and not self.executor_lost:
            self.executor_lost_s = time.monotonic() - waited_s
        self.executor_lost = lost

    def note_outage(self, outage: str) -> bool:
        """What the executor cannot do now; returns whether an outage has begun or ended by that."""
        changed = bool(outage) != bool(self.outage)
        if changed:
            self.outage_s = time.monotonic()
        self.outage = outage
        return changed

    @property
    def step_age_s(self) -> float:
        """Seconds since the last good step."""
        return time.monotonic() - self.stepped_s

    @property
    def executor_age_s(self) -> float:
        """Seconds since the executor stopped to answer; 0 while it does."""
        return time.monotonic() - self.executor_lost_s if self.executor_lost else 0.0

    @property
    def outage_age_s(self) -> float:
        """Seconds since the outage began; 0 while there is none."""
        return time.monotonic() - self.outage_s if self.outage else 0.0

    def tell_outage(self) -> str:
        """The outage in a sentence with its age; empty if there is none."""
        return f"for {show_span(self.outage_age_s)}: {self.outage}" if self.outage else ""

    def tell(self) -> str:
        """What stands still, in a sentence with its age; empty if nothing does."""
        if self.step_age_s > STILL_S:
            why = f" ({self.failing})" if self.failing else ""
            return f"the platform stands still: no step has succeeded for {show_span(self.step_age_s)}{why}"
        if self.executor_lost:
            return f"the executor has not answered for {show_span(self.executor_age_s)}: {self.executor_lost}"
        return ""

    def check(self, store: Store, root: Path) -> dict[str, dict[str, Any]]:
        """What readiness rests on, each with whether it is well, its age, and what is wrong."""
        is_fresh, age_s = self.step_age_s <= STILL_S, self.step_age_s
        return {
            "step": {"ok": is_fresh, "age_s": round(age_s, 3), "sentence": self.failing if not is_fresh else ""},
            "executor": {
                "ok": not self.executor_lost,
                "age_s": round(self.executor_age_s, 3),
                "sentence": self.executor_lost,
            },
            # jobs go on in it, and so the platform is ready
            "outage": {"ok": True, "age_s": round(self.outage_age_s, 3), "sentence": self.outage},
            "store": check_store(store),
            "disk": check_disk(root),
            **({} if store.leadership is None else {"lead": check_lease(store.leadership)}),
            **{name: check() for name, check in self.others.items()},
        }


def check_store(store: Store) -> dict[str, Any]:
    """Whether the database can be read."""
    began_s = time.monotonic()
    try:
        store.fact("anchor")
    except Exception as error:  # whatever a driver may raise
        return {"ok": False, "age_s": round(time.monotonic() - began_s, 3), "sentence": show_safely(error)}
    return {"ok": True, "age_s": round(time.monotonic() - began_s, 3), "sentence": ""}


def check_lease(leadership: Leadership) -> dict[str, Any]:
    """Whether this server is the one that serves its database."""
    sentence = "" if leadership.is_current else leadership.lost or "the lease of the database is not renewed"
    return {"ok": not sentence, "age_s": round(leadership.age_s, 3), "sentence": sentence}


def check_disk(root: Path) -> dict[str, Any]:
    """Whether there is room left under the state directory."""
    free = disk_usage(root).free
    sentence = (
        "" if free >= LEAST_FREE_BYTES else f"{free >> 20} MiB are free; free space: springtide du, springtide gc"
    )
    return {"ok": not sentence, "age_s": 0.0, "free_bytes": free, "sentence": sentence}


def show_safely(error: BaseException) -> str:
    """An error in one line of letters that can be stored and shown."""
    cause = find_cause(error)
    text = " ".join(str(cause).split()) or type(cause).__name__
    return text.encode("utf-8", "backslashreplace").decode()[:500]
