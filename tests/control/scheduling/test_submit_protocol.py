"""The way of a submission, killed at every step: sent until it is answered, it makes one job that is started once.

An explorer in place of a proof: every effect of the protocol (a write to the store, a word to or from the executor, an
answer to the client) is a point at which the server may die, before it or after it. Each point, and each pair of
points, is tried on the real reconciler, store and executor contract; the client sends its submission again under the
same key after each death, as `Client` does.
"""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling.submissions import Submission
from springtide.core.job_file import check_job
from springtide.core.job_states import JobState
from springtide.executors.fake import FakeJob
from springtide.executors.protocol import Instruction, Start

SCRIPTS = {"short": FakeJob(total_steps=20, speeds={1: 10.0}, startup_s=0.5)}
MOST_STEPS = 60


class Killed(BaseException):
    """The server is gone."""


class Explorer:
    """One run with kills at the given effects; effects are counted across the lives of the server."""

    def __init__(self, folder: Path, kills: tuple[int, ...]) -> None:
        self.server = HandClockServer(folder, scripts=SCRIPTS)
        self.kills, self.effects = kills, count(1)
        self.seen = 0
        self.starts: list[tuple[str, int]] = []
        self.job = check_job({"run": "python train.py short"}, "test")
        self.code = self.server.code()
        obey: Callable[[Instruction], None] = self.server.executor.obey

        def note(instruction: Instruction) -> None:
            if isinstance(instruction, Start):
                self.starts.append((instruction.job, instruction.generation))
            obey(instruction)

        self.server.executor.obey = note  # type: ignore[method-assign]
        self.originals = {name: getattr(self.server.executor, name) for name in ("apply", "events", "acknowledge")}

    def arm(self) -> None:
        """Let this life of the server die at the effects chosen."""
        for name, function in self.originals.items():
            setattr(self.server.executor, name, self.wrap(function))
        self.server.store.write = self.wrap(self.server.store.write)  # type: ignore[method-assign]

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """An effect with a death before it and one after it."""

        def act(*given: Any) -> Any:
            self.pass_point()
            value = function(*given)
            self.pass_point()
            return value

        return act

    def pass_point(self) -> None:
        """Die here, or not."""
        self.seen = next(self.effects)
        if self.seen in self.kills:
            raise Killed

    def submit(self) -> str | None:
        """One try of the client; None if its answer was lost."""
        submission = Submission(self.job, self.code, "ann", key="the-one-key")
        future = self.server.reconciler.call(lambda: self.server.operations.submit(submission))
        if not self.live(self.server.reconciler.step) or not self.live(self.pass_point):
            return None
        return future.result(timeout=0)

    def live(self, action: Callable[[], None]) -> bool:
        """Do something in this life; after a death the next one begins. Returns whether it was done."""
        try:
            action()
        except Killed:
            for name, function in self.originals.items():
                setattr(self.server.executor, name, function)
            self.server.restart()
            self.arm()
            return False
        return True

    def run(self) -> str:
        """Submit until answered, then wait for the end."""
        self.arm()
        answers = (self.submit() for _ in range(10))
        job_id = next(one for one in answers if one is not None)
        for _ in range(MOST_STEPS):
            if self.server.store.job(job_id).state is JobState.SUCCEEDED:  # type: ignore[union-attr]
                break
            self.live(lambda: self.server.pass_s(0.5))
        return job_id


def check(folder: Path, kills: tuple[int, ...]) -> int:
    """Run with these kills and see that there is one job, started once, finished; returns the effects there were."""
    explorer = Explorer(folder, kills)
    job_id = explorer.run()
    records = explorer.server.store.list_jobs()
    assert [record.id for record in records] == [job_id], (kills, records)
    assert records[0].state is JobState.SUCCEEDED, (kills, records[0])
    assert len(explorer.starts) == 1, (kills, explorer.starts)
    kinds = explorer.server.event_kinds(job_id)
    assert (kinds.count("submitted"), kinds.count("succeeded")) == (1, 1), (kills, kinds)
    explorer.server.store.close()
    return explorer.seen


def test_without_a_kill_there_are_effects_to_kill_at(tmp_path: Path) -> None:
    assert check(tmp_path, ()) > 20


def test_a_kill_at_any_effect_makes_no_second_job_and_loses_none(tmp_path: Path) -> None:
    effects = check(tmp_path / "none", ())
    for kill in range(1, effects + 1):
        check(tmp_path / str(kill), (kill,))


@pytest.mark.slow
def test_two_kills_at_any_effects_make_no_second_job_and_lose_none(tmp_path: Path) -> None:
    for first in range(1, 25):
        for second in range(first + 1, 31):
            check(tmp_path / f"{first}-{second}", (first, second))
