"""Real processes burn processors beside a real platform: it sees them, says so, and promises less while they do."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.control.test_live import TRAIN, home

from springtide.client.client import Client
from springtide.control.background import start_background
from springtide.control.storage.state_dir import StateDir, read_address

__all__ = ["home"]
pytestmark = pytest.mark.slow

HOGS = 6
LONGEST_S = 200
HOG = f"import time\nuntil_s = time.monotonic() + {LONGEST_S}\nwhile time.monotonic() < until_s: pass"
#: Each mini-batch burns 10 ms of processor time, so it takes longer where others burn some too.
BURN = "until_s = time.process_time() + 0.01\n            while time.process_time() < until_s: pass"
SCRIPT = TRAIN.replace("time.sleep(0.01)", BURN)


@contextmanager
def burn() -> Iterator[None]:
    """Others on this machine, for the block; they end by themselves if we do not end them."""
    hogs = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(HOGS)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def await_load(client: Client, is_wanted: Callable[[str | None], bool]) -> str:
    """Wait until the server says of others what is wanted."""
    until_s = time.monotonic() + 90
    while time.monotonic() < until_s:
        told = client.server().document["outside_load"]
        if is_wanted(told):
            return str(told)
        time.sleep(0.5)
    pytest.fail(f"after 90 s the server says of others: {told}")


def test_others_on_the_machine_are_seen_told_and_counted_until_they_end(home: StateDir, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(SCRIPT.replace("EPOCHS", "100"))
    job = {"run": "python train.py", "workdir": str(work), "checkpoint": {"every": "5s"}}
    start_background(home, ("--devices", "2", "--port", "0"))
    with Client(home=home.root) as client:
        known = client.submit({**job, "deadline": "20m"})  # 800 steps: its speed is known afterwards
        assert client.wait(known.id).met
        if told := client.server().document["outside_load"]:
            pytest.skip(f"this machine is not quiet: {told}")
        alone_s = min(share.alone_s for share in client.plan({**job, "deadline": "20m"}).shares)
        tight = {**job, "deadline": f"{2 * alone_s:.0f}s"}  # the hogs make it four times as long
        assert client.plan(tight).answer == "admitted"
        with burn():
            await_load(client, lambda told: client.nodes()[0].document["slowdown"] > 2.5)  # the first look sees a part
            assert "cores of this machine" in await_load(client, bool)
            beside = client.plan(tight)
            assert beside.answer == "declined" and "other programs used the processors" in beside.sentence
            wide = client.submit({**job, "deadline": "20m"}, wait=False)
            assert client.wait(wide.id, lambda document: document.step > 20).promised
            assert "other programs want" in " ".join(client.why(wide.id).facts)
            address = read_address(home)
            assert address is not None
            ready = httpx.get(f"{address['url']}/readyz")
            assert ready.status_code == 200 and "cores of this machine" in ready.json()["checks"]["load"]["sentence"]
            assert client.wait(wide.id).met
            assert not client.submit(tight).promised
        await_load(client, lambda told: told is None)
        assert client.plan(tight).answer == "admitted"
        kinds = [event.kind for event in client.events()]
        assert kinds.index("outside_load") < kinds.index("outside_load_over")
