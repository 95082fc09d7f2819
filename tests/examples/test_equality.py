"""All four examples by bits: hand-written stock DDP, `verify`'s reference mode, and ours on several mappings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from springtide.examples import NAMES, folder
from springtide.verification.digest_compare import check_reference, find_difference, read_records

STEPS = 4
FORK_RUNS = Path(__file__).with_name("fork_runs.py")
SCRIPTS = Path(__file__).with_name("scripts")
# A small epoch, so that four steps cross from one into the next.
ARGUMENTS = {
    "cnn": ["--epochs", "2", "--batch-size", "120"],
    "gpt": ["--epochs", "2", "--windows", "96"],
    "recommender": ["--epochs", "2", "--batch-size", "3000"],
    "resnet": ["--epochs", "2", "--images", "120", "--batch-size", "10"],
}
MAPPINGS = {"reference": (1, 1, 1, 1), "alone": (4,), "2+1+1": (2, 1, 1), "3+1": (3, 1), "4": (1, 1, 1, 1)}
Folders = dict[tuple[str, str], Path]
pytestmark = pytest.mark.timeout(900)  # the first test waits for all runs


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """The traces of every example's runs, made by one process that forks them all."""
    root = tmp_path_factory.mktemp("traces")
    folders = {(name, kind): root / name / kind for name in NAMES for kind in ["stock", *MAPPINGS]}
    runs = [plan_run(name, kind, traces) for (name, kind), traces in folders.items()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(FORK_RUNS)], input=json.dumps(runs), text=True, check=True, env=environment)
    return folders


def plan_run(name: str, kind: str, traces: Path) -> dict[str, object]:
    return {
        "script": str(SCRIPTS / name / "train_ddp.py" if kind == "stock" else folder(name) / "train.py"),
        "imports": str(folder(name)),
        "arguments": ARGUMENTS[name],
        "steps": STEPS,
        "traces": str(traces),
        "counts": MAPPINGS.get(kind, (1, 1, 1, 1)),
        "mode": kind if kind in ("stock", "reference") else "elastic",
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", MAPPINGS)
def test_every_bit_equals_the_handwritten_reference(name: str, kind: str, traces: Folders) -> None:
    reference = read_records(traces[name, "stock"])
    check_reference(reference)
    assert len(reference) == STEPS
    assert find_difference(reference, read_records(traces[name, kind])) is None
