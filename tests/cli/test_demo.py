"""The demo: what it says of a run, and (slow) a whole one."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import httpx
import pytest
from tests.client.made_up_replies import make_job

from springtide.cli import demo
from springtide.cli.demo import tell_board, tell_next, tell_outcome
from springtide.cli.demo_scenario import FIRST, OTHERS, DemoResult, DemoRun, choose_devices
from springtide.client.client import Client
from springtide.control.storage.state_dir import StateDir
from springtide.errors import InputError


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


def test_the_last_thing_said_is_the_address_of_the_board(tmp_path: Path) -> None:
    said: list[str] = []
    tell_board(tmp_path, "http://127.0.0.1:1/signin/once", said.append)
    assert said[-1].endswith(": http://127.0.0.1:1/signin/once")
    assert f"SPRINGTIDE_HOME={tmp_path} " in said[0] and said[0].endswith(" ui") and said[1].endswith(" stop")


def test_the_next_demo_ends_the_board_of_the_last_and_no_other(tmp_path: Path) -> None:
    over, running, other = (tmp_path / name / "state" for name in ("springtide-demo-a", "springtide-demo-b", "mine"))
    for folder in (over, running, other):
        folder.mkdir(parents=True)
    for folder in (over, other):
        (folder / demo.OVER).touch()
    demo.clear_earlier(tmp_path)
    assert not over.parent.exists() and running.exists() and other.exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_whole_run_keeps_its_promises_and_its_bits_and_ends_with_its_board() -> None:
    command = [str(Path(sys.executable).with_name("springtide")), "demo", "-o", "json"]
    place = tempfile.mkdtemp()  # of its own, so that nobody else's board is ended; and short
    try:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TMPDIR": place})
        assert done.returncode == 0, done
        document = json.loads(done.stdout)
        with httpx.Client(follow_redirects=True, headers={"accept": "text/html"}) as browser:
            page = browser.get(done.stderr.split()[-1])
        assert '<h1 class="sr">Promise board</h1>' in page.text and "digits-resnet" in page.text
    finally:
        demo.clear_earlier(Path(place))
        shutil.rmtree(place, ignore_errors=True)
    assert document["ok"] and document["worker_killed"]
    assert document["offers_accepted"] == ["source-gpt"]
    assert sum(document["rescales"].values()) > 0
    assert all(job["bits_equal"] for job in document["jobs"])


@pytest.mark.timeout(300)
def test_the_address_works_when_the_demo_is_over_and_until_the_next_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with demo.open_demo() as home, Client(home=home.root) as client:
        (home.root / demo.OVER).touch()
        link = client.make_link()
    with httpx.Client(follow_redirects=True, headers={"accept": "text/html"}) as browser:
        assert '<h1 class="sr">Promise board</h1>' in browser.get(link).text
        with pytest.raises(InputError), demo.open_demo():  # one that breaks off leaves nothing
            raise InputError("broken off")
        with pytest.raises(httpx.ConnectError):
            browser.get(link)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(300)
def test_an_open_demo_opens_the_board_signed_in_and_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    opened: list[str] = []
    monkeypatch.setattr("springtide.cli.ui.open_browser", opened.append)
    with httpx.Client(follow_redirects=True, headers={"accept": "text/html"}) as browser:
        with demo.open_demo(browser=True) as home, Client(home=home.root) as client:
            assert '<h1 class="sr">Promise board</h1>' in browser.get(opened[0]).text

            def press(_seconds: float) -> None:
                told = capsys.readouterr().err
                assert "the board stays open at http" in told and "Ctrl-C ends it" in told
                raise KeyboardInterrupt

            monkeypatch.setattr("springtide.cli.demo.time.sleep", press)
            run = make_run()
            run.client = client
            demo.stay_open(run)
            monkeypatch.undo()
        with pytest.raises(httpx.ConnectError):
            browser.get(opened[0])
    assert list(tmp_path.iterdir()) == []
