"""What rank 0 decides at a boundary, and what SIGTERM means to it and to a process that its script has forked."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from springtide.training.group.agreement import Action, Agreement
from springtide.training.group.control_channel import Channel
from springtide.training.group.rosters import make_roster
from springtide.training.settings import Settings

ROSTER = make_roster((1,))


@pytest.fixture(autouse=True)
def kept_sigterm() -> Iterator[None]:
    """SIGTERM means what it did before."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def agree(settings: Settings) -> Agreement:
    """The agreement of a process without a supervisor."""
    return Agreement(settings, Channel(None, "p0"), None)


def test_sigterm_is_kept_for_the_boundary_here_and_ends_a_forked_process_at_once() -> None:
    agreement = agree(Settings())
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    signal.raise_signal(signal.SIGTERM)
    assert agreement.is_terminated()


def test_a_checkpoint_asked_for_by_its_step_is_not_left_out_on_a_slow_disk(tmp_path: Path) -> None:
    agreement = agree(Settings(checkpoint_dir=tmp_path, checkpoint_every_steps=3))
    decided = [agreement.decide(ROSTER, step, stopping=False, writing=True) for step in (5, 6)]
    assert decided == [Action.NOTHING, Action.CHECKPOINT]


def test_a_checkpoint_by_time_waits_for_the_one_that_is_being_written(tmp_path: Path) -> None:
    agreement = agree(Settings(checkpoint_dir=tmp_path, checkpoint_every_s=1e-9))
    decided = [agreement.decide(ROSTER, step, stopping=False, writing=step == 1) for step in (1, 2)]
    assert decided == [Action.NOTHING, Action.CHECKPOINT]
