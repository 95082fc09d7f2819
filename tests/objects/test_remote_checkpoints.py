"""Checkpoints in object storage: whole, of one writer, checked; a store that fails stops nobody."""

import json
import threading
from pathlib import Path

import pytest
import torch
from tests.objects.s3_server import BUCKET, S3Server
from tests.training.state.test_checkpoints import FACTS, state_at

from springtide.errors import CheckpointError
from springtide.executors.local.jobs.checkpoint_folder import CheckpointFolder
from springtide.objects.object_store import ObjectStore
from springtide.training.state.checkpoints import MANIFEST, OLD_S, WEIGHTS
from springtide.training.state.remote_checkpoints import PAUSES_S, RemoteCheckpoints


@pytest.fixture
def store(s3: S3Server, request: pytest.FixtureRequest) -> ObjectStore:
    return ObjectStore(f"s3://{BUCKET}/{request.node.name}", s3.environ)


def open_writer(store: ObjectStore, folder: Path, generation: int = 1, keep: int = 2) -> RemoteCheckpoints:
    return RemoteCheckpoints(store, folder, keep, generation)


def save(checkpoints: RemoteCheckpoints, *steps: int) -> RemoteCheckpoints:
    for step in steps:
        checkpoints.save(state_at(step), step, FACTS)
        checkpoints.wait()
    return checkpoints


def load_step(checkpoints: RemoteCheckpoints) -> int:
    saved = checkpoints.load(FACTS, allow_code_change=False)
    assert saved is not None
    assert torch.equal(saved.state["model"]["w"], torch.full((3, 2), float(saved.step)))
    return saved.step


def test_the_newest_comes_back_on_another_host_and_old_ones_go(store: ObjectStore, tmp_path: Path) -> None:
    save(open_writer(store, tmp_path / "a"), 3, 12, 20)
    assert [name.step for name in open_writer(store, tmp_path / "b").names()] == [20, 12]
    assert load_step(open_writer(store, tmp_path / "b")) == 20
    receipts = CheckpointFolder(tmp_path / "a")
    told = json.loads(store.read(f"{open_writer(store, tmp_path / 'b').names()[0]}/{MANIFEST}"))["files"]
    assert receipts.find_step() == 20 and receipts.find_weights() == told[WEIGHTS]["sha256"]
    assert receipts.measure() >= sum(file["bytes"] for file in told.values())
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["step-000000012", "step-000000020"]


def test_nothing_there_is_nothing(store: ObjectStore, tmp_path: Path) -> None:
    checkpoints = open_writer(store, tmp_path)
    checkpoints.clean()
    assert checkpoints.load(FACTS, allow_code_change=False) is None


def test_a_writer_that_was_replaced_overwrites_nothing_and_counts_less(store: ObjectStore, tmp_path: Path) -> None:
    old, new = open_writer(store, tmp_path / "old", 3), open_writer(store, tmp_path / "new", 4)
    save(old, 10)
    assert load_step(new) == 10
    save(new, 15)
    before = {name: store.read(name) for name in store.list() if "-g4-" in name}
    save(old, 15, 20, 30)  # it was cut off and trains on
    assert {name: store.read(name) for name in store.list() if "-g4-" in name} == before
    assert load_step(open_writer(store, tmp_path / "third", 5)) == 15


def test_without_its_manifest_a_checkpoint_does_not_count_and_is_cleaned_away(
    store: ObjectStore, tmp_path: Path
) -> None:
    save(open_writer(store, tmp_path / "a", 1), 10)
    store.write("step-000000099-g1-abc/model.safetensors", [b"half"])
    store.write("step-000000099-g7-abc/model.safetensors", [b"of a later start"])
    later = open_writer(store, tmp_path / "b", 2)
    later.clean()
    assert load_step(later) == 10
    assert [name for name in store.list() if "99" in name] == ["step-000000099-g7-abc/model.safetensors"]


def test_what_a_later_start_left_unfinished_long_ago_is_cleaned_away(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write("step-000000099-g7-abc/model.safetensors", [b"half"])
    assert 0.0 <= store.find_age_s("step-000000099-g7-abc/model.safetensors") < OLD_S
    monkeypatch.setattr(store, "find_age_s", lambda name: 2 * OLD_S)
    open_writer(store, tmp_path, 2).clean()
    assert not store.list()


def test_what_is_read_here_has_the_name_of_its_start(store: ObjectStore, tmp_path: Path) -> None:
    reader = save(open_writer(store, tmp_path, 7), 10)
    with reader.fetch(reader.names()[0]) as folder:
        open_writer(store, tmp_path, 6).clean()
        assert (folder / MANIFEST).exists(), "one that was cut off removes nothing of it"


def test_what_is_not_as_its_manifest_says_is_passed_over_and_marked(store: ObjectStore, tmp_path: Path) -> None:
    checkpoints = save(open_writer(store, tmp_path), 10, 20)
    newest = str(checkpoints.names()[0])
    store.write(f"{newest}/{WEIGHTS}", [b"other bytes"])
    saved = checkpoints.load(FACTS, allow_code_change=False)
    assert saved is not None and saved.step == 10 and newest in saved.passed_over[0]
    assert [name.step for name in checkpoints.names()] == [10]
    store.remove(f"{checkpoints.names()[0]}/{WEIGHTS}")
    with pytest.raises(CheckpointError, match=f"no checkpoint in {store.url} is whole"):
        checkpoints.load(FACTS, allow_code_change=False)


def test_a_store_that_fails_is_tried_again_behind_training(s3: S3Server, tmp_path: Path) -> None:
    store = ObjectStore(f"s3://{BUCKET}/again", {**s3.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    paused, go_on = threading.Event(), threading.Event()

    def pause(seconds: float) -> None:
        paused.set()
        assert go_on.wait(60)
        store.files = ObjectStore(f"s3://{BUCKET}/again", s3.environ).files

    checkpoints = RemoteCheckpoints(store, tmp_path, 2, 1, pause)
    checkpoints.save(state_at(5), 5, FACTS)  # returns with the copy in memory
    assert paused.wait(60) and checkpoints.is_busy
    assert "could not be written yet" in checkpoints.trouble
    go_on.set()
    assert checkpoints.wait() == 5 and load_step(checkpoints) == 5
    checkpoints.save(state_at(6), 6, FACTS)
    assert checkpoints.trouble == "", "it is of a checkpoint that is written"
    assert checkpoints.wait() == 6


def test_a_store_that_stays_away_costs_the_checkpoint_and_says_so(s3: S3Server, tmp_path: Path) -> None:
    pauses: list[float] = []
    nowhere = {**s3.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    checkpoints = RemoteCheckpoints(ObjectStore(f"s3://{BUCKET}/x", nowhere), tmp_path, 2, 1, pauses.append)
    checkpoints.save(state_at(5), 5, FACTS)
    with pytest.raises(
        CheckpointError, match=rf"checkpoint in s3://{BUCKET}/x could not be written: .*Could not connect"
    ):
        checkpoints.wait()
    assert tuple(pauses) == PAUSES_S
