"""Processes that serve, and the logs they write while they do."""

import fcntl
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.executors.local.agents import start_agent

from springtide.executors.local import daemon
from springtide.executors.local.paths import LOG


def test_who_writes_to_a_log_that_is_turned_over_goes_on_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "LOG_BYTES", 10)
    log, former = tmp_path / "agent.log", tmp_path / "agent.log.1"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"short\n")
        daemon.turn_over(log)
        assert not former.exists()
        writer.write(b"longer\n")
        daemon.turn_over(log)
        writer.write(b"new\n")
    assert (former.read_text(), log.read_text()) == ("short\nlonger\n", "new\n")
    assert stat.S_IMODE(former.stat().st_mode) == 0o600


def test_a_log_that_cannot_be_turned_over_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.turn_over(tmp_path / "gone.log")
    assert "cannot be turned over" in capsys.readouterr().err


def test_the_log_of_an_agent_is_turned_over_while_it_serves(tmp_path: Path) -> None:
    recorded = start_agent(tmp_path, warm=False)
    try:
        pid = recorded.executor.hello()["pid"]
        log = recorded.executor.state_dir / LOG
        with log.open("ab") as writer:
            writer.write(b"x" * (daemon.LOG_BYTES + 1))
        until_s = time.monotonic() + 30
        while log.stat().st_size > daemon.LOG_BYTES and time.monotonic() < until_s:
            time.sleep(0.05)
        assert log.stat().st_size < 1000 and log.with_name(f"{LOG}.1").stat().st_size > daemon.LOG_BYTES
        assert recorded.executor.hello()["pid"] == pid
    finally:
        recorded.executor.shutdown()


HOLD = "import sys; from pathlib import Path; from springtide.executors.local.paths import keep_from_cleaners as keep; "


def test_a_folder_in_use_is_left_alone_by_cleaners_of_old_files(tmp_path: Path) -> None:
    """systemd-tmpfiles passes over what it cannot lock; after ten days it took the code of what was at work."""
    command = [sys.executable, "-c", f"{HOLD}keep(Path(sys.argv[1])); print(1, flush=True); input()", str(tmp_path)]
    handle = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        assert held.stdout is not None and held.stdout.readline() == b"1\n"
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.communicate(b"\n")
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
