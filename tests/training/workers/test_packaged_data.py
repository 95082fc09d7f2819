"""Loaders and datasets of other packages, as they are installed: equal under rescales and kills, or refused."""

import io
import tarfile
from dataclasses import replace

import pytest
import torch
from tests.training.equality import SCRIPTS, EqualityRuns

from springtide.errors import TrainingError
from springtide.training.group.rosters import parse_size
from springtide.training.settings import Settings
from springtide.verification.digest_compare import Records, find_difference, read_records
from springtide.verification.scripted_jobs import ScriptedJob, follow

SCRIPT = SCRIPTS / "packaged_data.py"
ITEMS, STEPS = 80, 10
MOVED = [(0, "3"), (3, "1"), (7, "2")]


def train(
    equality: EqualityRuns,
    arguments: tuple[str, ...],
    sizes: list[tuple[int, str]],
    kills: tuple[int, ...] = (),
    mode: str = "elastic",
) -> Records:
    """The records of the script under a schedule."""
    folder = equality.new_folder()
    settings = Settings(trace_dir=folder / "trace", mode=mode)
    if kills:
        settings = replace(settings, checkpoint_dir=folder / "saved", checkpoint_every_steps=2)
    job = ScriptedJob(SCRIPT, arguments, folder, settings)
    follow(job, [(step, parse_size(size, 4)) for step, size in sizes], kills, 120, equality.host)
    return read_records(folder / "trace")


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tar of samples."""
    file = tmp_path_factory.mktemp("shards") / "train-0.tar"
    with tarfile.open(file, "w") as tar:
        for number, features in enumerate(torch.randn(ITEMS, 6, generator=torch.Generator().manual_seed(5))):
            for name, tensor in (("x", features), ("y", features.sum(0, keepdim=True))):
                text = io.BytesIO()
                torch.save(tensor.clone(), text)
                entry = tarfile.TarInfo(f"{number:04d}.{name}.pth")
                entry.size = text.tell()
                tar.addfile(entry, io.BytesIO(text.getvalue()))
    return str(file)


def test_a_stateful_loader_has_the_bits_of_ddp_under_rescales_and_kills(equality: EqualityRuns) -> None:
    pytest.importorskip("torchdata", reason="torchdata is not installed")
    stock = train(equality, ("stateful",), [(0, "4")], mode="reference")
    moved = train(equality, ("stateful",), MOVED, kills=(5,))
    assert len(stock) == STEPS and find_difference(stock, moved) is None


def test_a_web_dataset_with_a_seed_has_the_same_bits_under_rescales_and_kills(
    equality: EqualityRuns, shard: str
) -> None:
    pytest.importorskip("webdataset", reason="webdataset is not installed")
    still = train(equality, ("shards", shard, "7"), [(0, "1")])
    moved = train(equality, ("shards", shard, "7"), MOVED, kills=(5,))
    assert len(still) == STEPS and find_difference(still, moved) is None


def test_a_web_dataset_that_shuffles_by_the_clock_is_refused(equality: EqualityRuns, shard: str) -> None:
    pytest.importorskip("webdataset", reason="webdataset is not installed")
    with pytest.raises(TrainingError, match="gave other items when epoch 0 was read again"):
        train(equality, ("shards", shard), [(0, "1")])
