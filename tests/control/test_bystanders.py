"""Who keeps count beside a platform that is being broken: of waits with all that went wrong in them, and of effects."""

from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest
from benchmarks import bystanders
from benchmarks.bystanders import Bystander, Doors, Outages, list_changes


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that goes on with each look and each pause."""
    now_s = [0.0]

    def look() -> float:
        now_s[0] += 0.5
        return now_s[0]

    monkeypatch.setattr(bystanders.time, "monotonic", look)  # type: ignore[attr-defined]
    monkeypatch.setattr(bystanders, "PAUSE_S", 0.0)
    return now_s


UNDONE = {"error": {"sentence": "nothing was done"}, "job": "j1", "unknown": False}
UNKNOWN = {"error": {"sentence": "not known"}, "job": "j1", "unknown": True}
Answer = tuple[int, dict[str, Any]]


def meet(answers: Sequence[Answer | None], state: str) -> Bystander:
    """A bystander whose changes are answered like this, one after the other; None: the line breaks."""
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200 if state else 404, json={"state": state})
        status = left.pop(0)
        if status is None:
            raise httpx.ReadError("the line broke")
        return httpx.Response(status[0], json=status[1])

    bystander = Bystander(Doors(lambda: "http://here", "token", "archive"))
    bystander.http = httpx.Client(transport=httpx.MockTransport(answer))
    return bystander


def cancel(bystander: Bystander) -> None:
    bystander.insist("cancel", "POST", "/api/v1/jobs/j1/cancel", (200, 409), "j1")


def test_a_wait_counts_from_the_first_try_to_the_good_answer() -> None:
    bystander = meet([None, (503, UNKNOWN), (503, UNKNOWN), (201, {"id": "j1"})], "")
    assert bystander.submit("bystander-1") == "j1"
    ((wait_s, change),) = list_changes(bystander, Outages())
    first, last = bystander.asked[0], bystander.asked[-1]
    assert len(bystander.asked) == 4 and change.status == 201
    assert change.began_s < first.began_s and last.ended_s < change.ended_s
    assert wait_s == change.ended_s - change.began_s
    spans = Outages([(first.began_s, first.ended_s)])
    assert list_changes(bystander, spans)[0][0] == wait_s - (first.ended_s - first.began_s)
    assert spans.summarise() == {"count": 1, "total_s": 0.5, "longest_s": 0.5}


def test_what_was_never_answered_counts_too() -> None:
    bystander = meet([(503, UNDONE)] * 3, "")
    real: Callable[..., Any] = bystander.send

    def send(*words: Any, **named: Any) -> Any:
        if len(bystander.asked) == 3:
            bystander.ended.set()
        return real(*words, **named) if len(bystander.asked) < 3 else None

    bystander.send = send  # type: ignore[method-assign]
    cancel(bystander)
    ((wait_s, change),) = list_changes(bystander, Outages())
    assert change.status in (0, 503) and wait_s > 2.0


@pytest.mark.parametrize(
    ("answers", "state", "effects"),
    [
        ([(503, UNDONE), (200, {})], "cancelled", 1),
        ([(503, UNDONE), (200, {})], "running", 0),
        ([(503, UNKNOWN), (200, {})], "cancelled", 0),
        ([(503, UNKNOWN), (503, UNDONE), (200, {})], "cancelled", 0),  # by the first of them
        ([None, (503, UNDONE), (200, {})], "cancelled", 0),
    ],
    ids=["done", "undone", "unknown", "by-the-first", "by-a-line-that-broke"],
)
def test_a_cancel_that_was_called_undone_and_was_done_is_found(
    answers: list[Answer | None], state: str, effects: int
) -> None:
    bystander = meet(answers, state)
    cancel(bystander)
    assert len(bystander.effects) == effects


FAILURE = {"error": {"reason": "internal", "sentence": "it is in the log under 17"}}


@pytest.mark.parametrize(("state", "effects"), [("held", 1), ("", 0)])
def test_a_failure_of_the_platform_is_odd_and_a_job_that_it_made_is_found_by_its_name(state: str, effects: int) -> None:
    bystander = meet([(500, FAILURE), (201, {"id": "j1"})], state)
    assert bystander.submit("bystander-1") == "j1"
    assert len(bystander.odd) == 1 and bystander.odd[0].startswith("submit: 500")
    assert len(bystander.effects) == effects
    assert {one.what for one in bystander.asked} == {"submit", "look"}


def test_where_nobody_could_be_asked_nothing_was_done() -> None:
    bystander = meet([(503, UNDONE), (200, {})], "cancelled")
    places = [None, None, "http://here", None, "http://here", "http://here"]
    bystander.doors = Doors(lambda: places.pop(0), "token", "archive")
    cancel(bystander)
    assert len(bystander.effects) == 1 and not places
