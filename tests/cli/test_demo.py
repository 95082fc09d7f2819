"""The demo: what it says of a run, and (slow) a whole one."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.client.made_up_replies import make_job

from springtide.cli.demo import tell_next, tell_outcome
from springtide.cli.demo_scenario import FIRST, OTHERS, DemoResult, DemoRun, choose_devices
from springtide.control.storage.state_dir import StateDir


def make_run(**rescales: int) -> DemoRun:
    made = DemoRun(StateDir(Path("nowhere")), lambda line: None, lambda jobs, devices: None)
    made.rescales = Counter(rescales)
    return made


def test_it_says_how_often_jobs_were_resized_and_if_never_then_that() -> None:
    results = [DemoResult(make_job(faults=1), "a", "a"), DemoResult(make_job(faults=1), "b", "b")]
    told = tell_outcome(results, make_run(grows=1, shrinks=3))
    assert told == "jobs grew once and shrank 3 times; workers were lost twice"
    assert tell_outcome([], make_run()).startswith("NO job was resized this time")


def test_the_next_command_works_in_this_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(sys.executable).parent
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(own))
    assert tell_next() == "next: springtide new hello && cd hello && springtide submit job.yaml"
    monkeypatch.setenv("PATH", "/usr/bin")
    assert tell_next().startswith(f"next: source {own}/activate && springtide new hello")
    monkeypatch.chdir(own.parent.parent)
    assert tell_next().startswith(f"next: source {own.relative_to(Path.cwd())}/activate && springtide new hello")


@pytest.mark.parametrize(
    ("state", "met", "digests", "good"),
    [
        ("succeeded", True, ("a", "a"), True),
        ("succeeded", None, ("a", "a"), True),
        ("succeeded", False, ("a", "a"), False),
        ("failed", None, ("a", "a"), False),
        ("succeeded", True, ("a", "b"), False),
        ("succeeded", True, ("", ""), False),
    ],
)
def test_a_result_is_good_only_in_time_and_bit_for_bit(
    state: str, met: bool | None, digests: tuple[str, str], good: bool
) -> None:
    result = DemoResult(make_job(state=state, met=met), *digests)
    assert (result.kept and result.equal) is good


def test_the_first_starts_alone_and_one_asks_for_what_cannot_be() -> None:
    assert FIRST.deadline is None
    assert len(OTHERS) == 4 and "2s" in {job.deadline for job in OTHERS}
    assert 2 <= choose_devices() <= 4


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_whole_run_keeps_its_promises_and_its_bits() -> None:
    command = [str(Path(sys.executable).with_name("springtide")), "demo", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done
    document = json.loads(done.stdout)
    assert document["ok"] and document["worker_killed"]
    assert document["offers_accepted"] == ["source-gpt"]
    assert sum(document["rescales"].values()) > 0
    assert all(job["bits_equal"] for job in document["jobs"])
