"""One run and one gapless curve in each tracker, through five kills and two rescales, by the tracker's own reader."""

import atexit
import errno
import io
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.training.equality import SCRIPTS

from springtide.errors import JobError
from springtide.training.settings import Settings
from springtide.training.tracking.metric_journal import JOURNAL, JournalReader, LoggedMetrics, MetricJournal
from springtide.training.tracking.trackers import choose_trackers
from springtide.training.tracking.tracking import MetricTracking
from springtide.verification.scripted_jobs import Host, ScriptedJob, ScriptedRun

STEPS = 40
KILLS = (3, 9, 17, 18, 31)
Curve = list[tuple[int, float]]


def train(
    tracker: str, folder: Path, host: Host, count_written: Callable[[], int], variables: dict[str, str]
) -> dict[str, Curve]:
    """Train with kills of rank 0, and rescales that move logical worker 0 to another process; what was logged.

    Each kill comes when the tracker has something of that start.
    """
    saved = folder / "checkpoints"
    settings = Settings(
        checkpoint_dir=saved,
        checkpoint_every_steps=4,
        checkpoint_every_s=0,
        output=folder,
        hold_at=",".join(map(str, sorted({*KILLS, 13, 25}))),
    )
    job = ScriptedJob(SCRIPTS / "tracked.py", (tracker,), folder, settings, variables=variables)
    left, written = set(KILLS), 0
    with ScriptedRun(job, host, (2, 2)) as run:
        while (step := run.wait_for_hold()) is not None:
            if step in left:
                left.remove(step)
                restarts = run.restarts.count
                run.wait_for(lambda before=written: count_written() > before)  # type: ignore[misc]
                written = count_written()
                run.kill(0)
                run.wait_for_restart(restarts)
                continue
            if step == 13:
                run.resize((4,), devices=("slot:1",))
            if step == 25:
                run.resize((3, 1), devices=("slot:2", "slot:1"))
            run.go()
            run.wait_for_resize()
    assert run.restarts.count == len(KILLS)
    logged: dict[str, dict[int, float]] = {"loss": {}, "rate": {}}
    for event in run.events:
        if event["event"] == "logged":
            for name, value in event["metrics"].items():
                logged[name][event["step"]] = value
    return {name: sorted(values.items()) for name, values in logged.items()}


def check(found: dict[str, Curve], logged: dict[str, Curve]) -> None:
    """Every step once and in order, with the values that were logged."""
    assert [step for step, _ in found["loss"]] == list(range(1, STEPS + 1))
    assert [step for step, _ in found["rate"]] == list(range(STEPS))
    for name, curve in found.items():
        assert [value for _, value in curve] == pytest.approx([value for _, value in logged[name]], rel=1e-6)


@pytest.mark.slow
def test_tensorboard_has_one_gapless_curve(tmp_path: Path, host: Host) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logged = train("tensorboard", tmp_path, host, lambda: len(list(tmp_path.glob("tensorboard/*/*"))), {})
    (folder,) = (tmp_path / "tensorboard").iterdir()
    read = accumulators.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    assert len(list(folder.iterdir())) > 5  # one file per process that wrote
    check({name: [(one.step, one.value) for one in read.Scalars(name)] for name in ("loss", "rate")}, logged)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's, about SQLAlchemy
def test_mlflow_has_one_run_and_one_gapless_curve(tmp_path: Path, host: Host) -> None:
    mlflow = pytest.importorskip("mlflow")

    def count_metrics() -> int:
        with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
            there = database.execute("select count(*) from sqlite_master where name = 'metrics'").fetchone()[0]
            return int(database.execute("select count(*) from metrics").fetchone()[0]) if there else 0

    logged = train("mlflow", tmp_path, host, count_metrics, {"MLFLOW_EXPERIMENT_NAME": "digits"})
    client = mlflow.tracking.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("digits")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    curves = {name: client.get_metric_history(run.info.run_id, name) for name in ("loss", "rate")}
    check({name: [(one.step, one.value) for one in curve] for name, curve in curves.items()}, logged)


@pytest.mark.slow
def test_wandb_offline_has_one_run_and_one_gapless_curve(tmp_path: Path, host: Host) -> None:
    datastores = pytest.importorskip("wandb.sdk.internal.datastore")
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    logged = train("wandb", tmp_path, host, lambda: len(list(tmp_path.glob("wandb/offline-*/*.wandb"))), offline)
    files = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len({file.stem for file in files}) == 1  # one id
    assert len(files) > 5
    rows = [row for file in files for row in read_rows(datastores.DataStore(), file)]
    check({name: [(row["_step"], row[name]) for row in rows if name in row] for name in ("loss", "rate")}, logged)


def read_rows(store: Any, file: Path) -> list[dict[str, Any]]:
    """The rows of an offline file, by W&B's own reader."""
    from wandb.proto.wandb_internal_pb2 import Record

    store.open_for_scan(str(file))
    rows = []
    while True:
        try:
            data = store.scan_data()
        except AssertionError:  # a record that a kill has cut short
            break
        if data is None:
            break
        record = Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            rows.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item})
    store._fp.close()
    return rows


@pytest.mark.slow
def test_a_tracker_that_is_down_costs_training_nothing_but_its_curve(tmp_path: Path, host: Host) -> None:
    pytest.importorskip("mlflow")
    settings = Settings(checkpoint_dir=tmp_path / "saved", output=tmp_path)
    nowhere = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    job = ScriptedJob(SCRIPTS / "tracked.py", ("mlflow",), tmp_path, settings, variables=nowhere)
    with ScriptedRun(job, host, (4,)) as run:
        run.wait()
    assert run.codes == [0]
    _, lines = read_journal(tmp_path / "saved" / JOURNAL)
    assert [line.step for line in lines if "loss" in line.metrics] == list(range(1, STEPS + 1))


def read_journal(file: Path) -> tuple[str, list[LoggedMetrics]]:
    """The run's id and all lines."""
    with closing(JournalReader(file)) as reader:
        return reader.run, reader.read(1000)


# Without any tracker.


def test_a_journal_has_each_value_once_whatever_was_cut_short(tmp_path: Path) -> None:
    file = tmp_path / JOURNAL
    first = MetricJournal(file, anew=False)
    for step in range(5):
        first.add(step, 0.0, {"loss": step / 2})
    first.close()
    os.truncate(file, file.stat().st_size - 3)
    again = MetricJournal(file, anew=False)
    for step in range(2, 7):
        again.add(step, 0.0, {"loss": step / 2, "rate": 1.0})
    again.close()
    run, lines = read_journal(file)
    for name, steps in {"loss": list(range(7)), "rate": list(range(2, 7))}.items():
        assert [line.step for line in lines if name in line.metrics] == steps
    with closing(MetricJournal(file, anew=True)) as fresh:
        assert fresh.last == {}
    assert read_journal(file)[0] != run


@pytest.mark.parametrize("spoilt", [b'{"step": 3, "at\x00\x00\n', b"[]\n", b"\x00" * 40 + b"\n"])
def test_a_journal_goes_on_before_a_line_that_a_crash_has_spoilt(tmp_path: Path, spoilt: bytes) -> None:
    file = tmp_path / JOURNAL
    with closing(MetricJournal(file, anew=False)) as first:
        for step in range(3):
            first.add(step, 0.0, {"loss": 0.5})
    whole = file.read_bytes()
    file.write_bytes(whole + spoilt + b'{"step": 4, "at_s": 0.0, "metrics": {"loss": 0.5}}\n')
    with closing(MetricJournal(file, anew=False)) as again:
        assert again.last == {"loss": 2}
        for step in range(6):
            again.add(step, 0.0, {"loss": 0.5})
    assert [line.step for line in read_journal(file)[1]] == list(range(6))
    file.write_bytes(spoilt + whole)
    MetricJournal(file, anew=False).close()
    assert read_journal(file)[1] == []


def make_tracking(folder: Path, said: list[str]) -> MetricTracking:
    """The journal of a run, without feeds."""
    tracking = MetricTracking(Settings(track="tensorboard", checkpoint_dir=folder), folder, said.append)
    tracking.start = lambda name: SimpleNamespace(stdin=SimpleNamespace(close=lambda: None))  # type: ignore[assignment,method-assign,return-value]
    return tracking


class CountedFeed:
    """A feed that notes whether it was told of the end, and ends at once."""

    def __init__(self) -> None:
        self.said = io.BytesIO()
        self.stdin = SimpleNamespace(write=self.said.write, flush=lambda: None, close=lambda: None)

    def wait(self, timeout_s: float) -> int:
        """It has ended."""
        return 0


def test_what_is_logged_after_the_run_reaches_the_trackers_when_the_script_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A framework's summary, and an evaluation after training, were in the journal alone."""
    tracking, feeds, at_exit = make_tracking(tmp_path, []), list[CountedFeed](), list[Callable[[], None]]()
    tracking.start = lambda name: feeds.append(CountedFeed()) or feeds[-1]  # type: ignore[assignment,func-returns-value,method-assign,return-value]
    monkeypatch.setattr(atexit, "register", at_exit.append)
    tracking.move(is_here=True)
    tracking.log(1, {"loss": 1.0})
    tracking.finish()
    assert len(feeds) == 1 and not at_exit
    tracking.log(1, {"train_loss": 2.0})
    tracking.log(1, {"eval_loss": 3.0})
    assert len(feeds) == 2 and len(at_exit) == 1
    at_exit[0]()
    assert [feed.said.getvalue() for feed in feeds] == [b"finished"] * 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_takes_no_line_costs_training_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    said: list[str] = []
    tracking = make_tracking(tmp_path, said)
    tracking.move(is_here=True)
    tracking.log(0, {"loss": 1.0})

    def fail(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        patch.setattr(os, "fsync", fail)
        tracking.log(1, {"loss": 2.0})
        tracking.sync()
        tracking.log(2, {"loss": 3.0})
    tracking.log(2, {"loss": 3.0})
    tracking.move(is_here=False)
    assert [line.step for line in read_journal(tmp_path / JOURNAL)[1]] == [0, 2]
    assert len(said) == 1 and os.strerror(code) in said[0] and "training goes on" in said[0]


def test_a_line_that_is_cut_short_by_a_full_disk_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    tracking, write = make_tracking(tmp_path, said), os.write
    tracking.move(is_here=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, text: write(handle, text[:7]))
        tracking.log(0, {"loss": 1.0})
    tracking.log(1, {"loss": 2.0})
    tracking.sync()
    assert [line.step for line in read_journal(tmp_path / JOURNAL)[1]] == [1]
    assert len(said) == 1 and "No space left" in said[0]


def test_a_folder_that_cannot_be_written_to_costs_training_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "file").touch()
    tracking = make_tracking(tmp_path / "file", said)
    tracking.move(is_here=True)
    tracking.log(0, {"loss": 1.0})
    tracking.sync()
    tracking.finish()
    assert len(said) == 1


def test_trackers_are_chosen_by_the_environment_before_the_script() -> None:
    assert choose_trackers(["tensorboard"], "none") == ""
    assert choose_trackers("", "") == ""
    with pytest.raises(JobError, match="track='tensorbord' is no tracker that springtide knows; choose among tensor"):
        choose_trackers("tensorbord", "")
