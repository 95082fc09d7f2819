"""Two device types on one machine, with real processes: measured on both, mixed by speed, and the bits stay."""

from pathlib import Path

import pytest
from tests.control.test_live import TRAIN, home

from springtide.cli.demo_scenario import hash_weights, train_plainly
from springtide.client.client import Client
from springtide.control.background import start_background
from springtide.control.storage.state_dir import StateDir

__all__ = ["home"]

#: On the slower type a mini-batch takes twice as long; which type it is, the script knows by its variables.
SCRIPT = (
    TRAIN.replace("import torch\n", "import os, torch\nslow = os.environ.get('MKL_CBWR') == 'COMPATIBLE'\n", 1)
    .replace("logical_workers=2", "logical_workers=6")
    .replace("batch_size=4", "batch_size=2")
    .replace("time.sleep(0.01)", "time.sleep(0.03 if slow else 0.015)")
    .replace("EPOCHS", "30")
)


@pytest.mark.whole
def test_a_d2_job_runs_on_two_types_by_their_speed_with_the_bits_of_a_plain_run(
    home: StateDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(SCRIPT)
    told = {"run": "python train.py", "workdir": str(work), "determinism": "D2", "checkpoint": {"every": "1s"}}
    start_background(home, ("--devices", "1:cpu,1:cpu-sse41", "--port", "0"))
    with Client(home=home.root) as client:
        assert [device.device_type for device in client.nodes()] == ["cpu", "cpu-sse41"]
        known = client.submit({**told, "deadline": "10m", "steps": 20})
        assert client.wait(known.id).met
        measured = [event.sentence for event in client.events(known.id) if event.kind == "probed"]
        assert [sentence.split()[-1] for sentence in measured] == ["cpu", "cpu-sse41"]
        job = client.submit(told, wait=False).id
        both = client.wait(job, lambda document: len(document.devices) == 2 or document.finished_at is not None)
        assert both.devices == ("cpu:0", "cpu:1")
        ended = client.wait(job)
        assert (ended.state, ended.faults, ended.lost_steps) == ("succeeded", 0, 0)
        workers = [event.data["workers"] for event in client.events(job) if event.kind in ("placed", "grows")]
    assert [4, 2] in workers, "the faster device runs more logical workers"
    monkeypatch.setenv("SPRINGTIDE_LEVEL", "D2")
    assert hash_weights(home.checkpoints(job)) == train_plainly(work, (), tmp_path / "plain")
