"""What is left of a script that fails while its speed is measured, with a real server and real processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SCRIPT = """
print("loading the data")
raise ValueError("no such file: data.bin")
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    environment = os.environ | {"SPRINGTIDE_HOME": str(tmp_path / "home")}

    def run_command(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "springtide", *words]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    yield run_command
    run_command("stop")


def test_its_log_is_where_why_sends_its_owner(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "job.yaml").write_text(json.dumps({"name": "broken", "run": "python train.py", "deadline": "1h"}))
    told = run("submit", "job.yaml")
    assert told.returncode == 1 and "ValueError: no such file: data.bin (train.py, line 3)" in told.stdout
    assert "springtide logs broken" in run("why", "broken").stdout
    log = run("logs", "broken").stdout
    assert log.startswith("--- probe") and "loading the data" in log and "train.py" in log
    assert run("logs", "-f", "broken").stdout == log  # into a pipe or a file, and it ends with the job
