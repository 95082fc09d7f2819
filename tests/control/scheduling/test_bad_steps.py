"""A store that fails for hours fills no log, and is asked again after a pause that stays short."""

import logging
from pathlib import Path
from typing import Any

import pytest
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling.loop import bad_steps
from springtide.control.scheduling.loop.bad_steps import MOST_PAUSE_S, BadSteps


class CountedPauses:
    """Says when to stop: after so many pauses."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.pauses: list[float] = []

    def is_set(self) -> bool:
        return len(self.pauses) >= self.most

    def wait(self, pause_s: float) -> None:
        self.pauses.append(pause_s)


def list_told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if "of the reconciler" in record.getMessage()]


def test_a_store_that_fails_is_told_once_and_asked_again_after_longer_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reconciler = HandClockServer(tmp_path).reconciler
    counted: Any = CountedPauses(9)

    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(reconciler, "_stopping", counted)
    monkeypatch.setattr(reconciler, "step", fail)
    monkeypatch.setattr(reconciler, "rebuild", fail)
    reconciler.run()
    assert counted.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    (told,) = list_told(caplog)
    assert told.exc_info is not None and reconciler.health.failures == 9


def test_a_good_step_or_another_failure_begins_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad, full, gone = BadSteps(), OSError("No space left on device"), OSError("Input/output error")
    for error in (full, full, gone, gone, full):
        bad.note(error)
    assert [record.exc_info is not None for record in list_told(caplog)] == [True] * 3
    monkeypatch.setattr(bad_steps, "TOLD_AGAIN_S", 0.0)
    assert bad.note(full) > 1.0 and bad.note(full) == MOST_PAUSE_S
    last = list_told(caplog)[-1]
    assert last.exc_info is None and last.getMessage() == (
        "7 steps of the reconciler have failed in a row: No space left on device"
    )
    bad.forget()
    assert bad.note(full) == bad_steps.LEAST_PAUSE_S and list_told(caplog)[-1].exc_info is not None
