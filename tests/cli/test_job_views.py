"""What `springtide status` says of a job, and what it leaves out."""

import pytest
from tests.client.made_up_replies import make_job

from springtide.cli.job_views import print_job


def list_facts(capsys: pytest.CaptureFixture[str], **changes: object) -> list[str]:
    """The names of the facts that are shown of a job."""
    print_job(make_job(**changes))
    return [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]


def test_facts_that_say_nothing_yet_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    shown = list_facts(capsys, rescales=0, faults=0, device_s=0.0, finished_at=None, predicted_finish=None)
    assert {"progress", "devices", "deadline", "weights"} <= {*shown}
    assert {"rescales", "faults", "used", "finished", "expected"} & {*shown} == set()


def test_steps_that_a_stop_has_lost_are_shown_without_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert "faults" in list_facts(capsys, faults=0, lost_steps=12)


def test_what_has_happened_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown = list_facts(capsys, rescales=2, pause_s=0.5, faults=1, lost_steps=3, device_s=20.0)
    assert {"rescales", "faults", "used"} <= {*shown}
