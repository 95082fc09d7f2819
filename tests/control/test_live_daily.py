"""Daily use with real processes: setup, inputs, outputs, jobs that wait for others, limits, and what is told."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from springtide.client.client import Client
from springtide.control.background import start_background
from springtide.control.storage.state_dir import StateDir, read_address
from springtide.executors.local.executor import LocalExecutor

SHELL = {"elastic": False, "devices": 1, "retry": {"max": 0}}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    home = StateDir(tmp_path / "state").make()
    (tmp_path / "work").mkdir()
    home.config.write_text("prices: {cpu: 3.6}\n")
    start_background(home, ("--devices", "2", "--port", "0"))
    address = read_address(home)
    with Client(home=home.root) as client:
        yield client
    if address is not None and psutil.pid_exists(address["pid"]):
        os.kill(address["pid"], signal.SIGKILL)
    LocalExecutor(home.root).shutdown()


def run(client: Client, folder: Path, line: str, **keys: Any) -> Any:
    job = folder / "work" / "job.yaml"
    job.write_text(json.dumps({"run": ["sh", "-c", line], **SHELL, **keys}))
    return client.submit(job)


def test_a_day_of_jobs_that_need_each_other(client: Client, tmp_path: Path) -> None:
    (tmp_path / "digits.txt").write_text("0123456789")
    told, runs = tmp_path / "told.json", tmp_path / "setups"
    line = 'cat made.txt "$SPRINGTIDE_INPUTS/digits" > "$SPRINGTIDE_OUTPUT/result.txt"; sleep 1'
    keys: dict[str, Any] = {
        "setup": [f"echo once >> {runs}", "echo built > made.txt"],
        "inputs": {"digits": str(tmp_path / "digits.txt")},
        "outputs": ["result.txt"],
    }
    first = run(client, tmp_path, line, name="first", **keys)
    second = run(client, tmp_path, line, name="second", after="first", notify=[{"command": ["tee", str(told)]}], **keys)
    assert second.waits_for[0].id == first.id
    ended = client.wait(second)
    assert (ended.state, client.job(first).state) == ("succeeded", "succeeded"), client.why(ended).sentence
    assert runs.read_text() == "once\n", "one setup for both"
    assert (tmp_path / "state" / "jobs" / ended.id / "output" / "result.txt").read_text() == "built\n0123456789"
    assert ended.inputs["digits"].startswith("files:") and ended.cost_usd is not None and ended.cost_usd > 0
    while client.notices(ended)[0].state == "open":
        time.sleep(0.1)
    assert json.loads(told.read_text())["event"] == "succeeded"

    failed = client.wait(run(client, tmp_path, "true", name="broken", setup="echo no compiler >&2; exit 3"))
    assert (failed.state, failed.reason) == ("failed", "setup_failed") and "no compiler" in failed.sentence
    assert "no compiler" in "".join(client.logs(failed)) and client.why(failed).remedy.endswith(
        "springtide logs broken"
    )
    missing = client.wait(run(client, tmp_path, "true", name="empty", outputs=["model.pt"]))
    assert (missing.state, missing.reason) == ("failed", "no_outputs")
    long = client.wait(run(client, tmp_path, "sleep 1000", name="long", max_runtime="1s"))
    assert (long.state, long.reason) == ("failed", "max_runtime")
