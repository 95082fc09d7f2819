"""Somebody else on a platform that is being broken: a user who submits and cancels jobs all the while, and keeps count.

Everything is judged from outside: how long it took from the first try of a request to its good answer, with all lines
that broke and all errors between, beyond the time in which the platform could not answer anybody (`Outages`, which are
told apart); whether a request that was answered with an error had an effect; and, in the database itself, that each
submission made one job.
"""

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

PAUSE_S = 0.25
ANSWER_S = 60.0


@dataclass(slots=True)
class Outages:
    """The times in which nobody could be answered, because the server or its database was the one that was broken."""

    spans: list[tuple[float, float]] = field(default_factory=list)

    @contextmanager
    def during(self) -> Iterator[None]:
        """An outage for as long as the block runs."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.spans.append((began_s, time.monotonic()))

    def summarise(self) -> dict[str, float]:
        """How many there were, how long all of them, and the longest."""
        lengths_s = [last_s - first_s for first_s, last_s in self.spans]
        longest_s = max(lengths_s, default=0.0)
        return {"count": len(lengths_s), "total_s": round(sum(lengths_s), 3), "longest_s": round(longest_s, 3)}

    def outside_s(self, began_s: float, ended_s: float) -> float:
        """How much of a span of time lies in no outage."""
        inside_s, reached_s = 0.0, began_s
        for first_s, last_s in sorted(self.spans):
            first_s, last_s = max(first_s, reached_s), min(last_s, ended_s)
            inside_s += max(0.0, last_s - first_s)
            reached_s = max(reached_s, last_s)
        return ended_s - began_s - inside_s


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, or all tries of one: what it was, when, and the status of its last answer; 0 if none came."""

    what: str
    began_s: float
    ended_s: float
    status: int


@dataclass(frozen=True, slots=True)
class Doors:
    """Where a platform is asked, and as whom; the address changes with every server."""

    find_url: Callable[[], str | None]
    token: str
    archive: str


@dataclass
class Bystander:
    """A user beside the faults; `run` in a thread of its own until `end`."""

    doors: Doors
    asked: list[Asked] = field(default_factory=list)
    changes: list[Asked] = field(default_factory=list)  # from the first try to the good answer, or to the end
    keys: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)  # of requests that were answered with an error
    odd: list[str] = field(default_factory=list)  # answers that no such request should get
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.doors.token}"}
        self.http = httpx.Client(headers=headers, timeout=ANSWER_S)
        self.thread = threading.Thread(target=self.run, name="bystander", daemon=True)

    def run(self) -> None:
        """Submit a job, cancel it, and again."""
        while not self.ended.is_set():
            key = f"bystander-{len(self.keys):06}"
            self.keys.append(key)
            job = self.submit(key)
            if job:
                self.insist("cancel", "POST", f"/api/v1/jobs/{job}/cancel", (200, 409), job)
            self.ended.wait(PAUSE_S)

    def submit(self, key: str) -> str:
        """Submit a job under a key until that is answered; its id."""
        name = key.replace("bystander", "other")
        body = {"job": {"name": name, "run": "python train.py 1", "hold": True}, "archive": self.doors.archive}
        answer = self.insist("submit", "POST", "/api/v1/jobs", (201, 202), name, key=key, json=body)
        return str(answer["id"]) if answer else ""

    def insist(
        self, what: str, method: str, path: str, good: Sequence[int], job: str, key: str = "", **more: Any
    ) -> Any:
        """Send a request about a job until it is answered well; what was answered then. None if this ended before."""
        headers = {"Idempotency-Key": key} if key else {}
        began_s, status, undone = time.monotonic(), 0, True  # whether all tries so far had no effect, for sure
        try:
            while not self.ended.is_set():
                url = self.doors.find_url()
                if url is None:  # nothing was sent, so nothing was done
                    self.ended.wait(PAUSE_S)
                    continue
                response = self.send(what, method, f"{url}{path}", headers=headers, **more)
                status = response.status_code if response is not None else 0
                if response is not None and status in good:
                    return response.json()
                if response is None:
                    undone = False
                elif status >= 500:
                    undone = self.check_effect(what, job, response, undone)
                elif status != 429:
                    self.odd.append(f"{what}: {status} {response.text[:300]}")
                    return None
                self.ended.wait(PAUSE_S)
            return None
        finally:
            self.changes.append(Asked(what, began_s, time.monotonic(), status))

    def send(self, what: str, method: str, url: str, **more: Any) -> httpx.Response | None:
        """The answer to a request; None if the line broke."""
        began_s, response = time.monotonic(), None
        with suppress(httpx.HTTPError):
            response = self.http.request(method, url, **more)
        status = response.status_code if response is not None else 0
        self.asked.append(Asked(what, began_s, time.monotonic(), status))
        return response

    def look(self, job: str) -> httpx.Response | None:
        """What is known of a job, asked for until it is answered; None if this came to an end before."""
        while not self.ended.is_set():
            url = self.doors.find_url()
            found = None if url is None else self.send("look", "GET", f"{url}/api/v1/jobs/{job}")
            if found is not None and found.status_code in (200, 404):
                return found
            self.ended.wait(PAUSE_S)
        return None

    def check_effect(self, what: str, job: str, response: httpx.Response, undone: bool) -> bool:
        """See that what was answered with an error was not done, unless it says that this is not known.

        Only 503 says that something is not there for a while; any other error is a failure of the platform itself.
        `undone`: no try before had an effect. Returns whether that still holds.
        """
        if response.status_code != 503:
            self.odd.append(f"{what}: {response.status_code} {response.text[:300]}")
        try:
            document = response.json()
        except ValueError:
            self.odd.append(f"{what}: {response.status_code} without a document: {response.text[:300]}")
            return False
        if document.get("unknown"):
            return False
        if undone:
            found = self.look(document.get("job") or job)
            is_there = found is not None and found.status_code == 200
            if is_there and (what == "submit" or (found is not None and found.json()["state"] == "cancelled")):
                self.effects.append(f"{what}: {response.status_code} {response.text[:300]}")
        return undone

    def end(self) -> None:
        """Come to an end."""
        self.ended.set()
        self.thread.join(2 * ANSWER_S)
        self.http.close()


def count_twice(database: Path) -> int:
    """Jobs that were submitted, or that ended, more than once, by the events in the database."""
    query = (
        "SELECT count(*) FROM (SELECT job FROM events WHERE kind IN ('submitted', 'cancelled', 'succeeded') "
        "GROUP BY job, kind HAVING count(*) > 1)"
    )
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=30.0)) as connection:
        return int(connection.execute(query).fetchone()[0])


def list_changes(bystander: Bystander, outages: Outages) -> list[tuple[float, Asked]]:
    """What only the thread which decides can answer, from first try to good answer; longest outside outages first.

    What had no answer when the run came to an end is in it, too.
    """
    waits = ((outages.outside_s(one.began_s, one.ended_s), one) for one in bystander.changes)
    return sorted(waits, key=lambda pair: -pair[0])


def summarise(bystander: Bystander, outages: Outages, database: Path) -> dict[str, Any]:
    """What the bystander saw."""
    waits_s = [wait_s for wait_s, _ in list_changes(bystander, outages)]
    statuses = Counter(one.status for one in bystander.asked)
    return {
        "requests": len(bystander.asked),
        "statuses": {str(status): statuses[status] for status in sorted(statuses)},
        "errors_with_effect": len(bystander.effects),
        "odd": [*bystander.effects, *bystander.odd],
        "twice": count_twice(database),
        "median_s": round(waits_s[len(waits_s) // 2], 3) if waits_s else None,
        "standstill_s": round(waits_s[0], 3) if waits_s else None,
        "over_2_s": sum(wait_s > 2.0 for wait_s in waits_s),
        "outages": outages.summarise(),
        "with_outages_s": round(max((one.ended_s - one.began_s for one in bystander.changes), default=0.0), 3),
    }
