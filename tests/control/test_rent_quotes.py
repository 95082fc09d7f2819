"""What renting would cost a declined job: over HTTP from a live server, and from what the platform measured itself."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control import http_servers
from tests.throughput.made_up_points import make_points

from springtide.cli import job_views, submit
from springtide.client.client import Client
from springtide.client.replies import JobInfo
from springtide.control.rent_quotes import RentQuotes, list_measured, make_case, may_rent, read_clouds, search_rent
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import JobRecord, SpeedRecord
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState
from springtide.errors import InputError
from springtide.executors.fake import FakeJob
from springtide.throughput.tables.points import write_points

HOUR = 3600.0
SLOW = FakeJob(total_steps=200_000, speeds={1: 6.0}, startup_s=0.1)
RECORD = JobRecord(
    "one", "one", "ann", JobState.DECLINED, JobFile(run="python train.py"), 0.0, deadline_s=4 * HOUR, speed_key="key"
)
A100 = SpeedRecord("key", {1: (50, 2.0), 2: (50, 3.8), 4: (50, 7.0)}, total_steps=100_000, logical_workers=8)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with http_servers.run_server(tmp_path, job=SLOW) as server, http_servers.connect(server) as client:
        yield client


def write_profiled(folder: Path, **keys: object) -> Path:
    """A project with a profile on T4s beside its script."""
    job = http_servers.write_project(folder, **keys)
    (folder / "net.points.csv").write_text(write_points(make_points("net", "T4")), encoding="utf-8")
    notes = {"schema": 1, "worker_batch": 32, "script_logical_workers": 8}
    (folder / "net.points.json").write_text(json.dumps(notes), encoding="utf-8")
    return job


def find_rent(client: Client, ref: str) -> JobInfo:
    """A job once it is answered, with what renting would cost it."""
    return client.wait(ref, lambda job: job.state != "probing")


def make_quotes(clouds: str, folder: Path) -> RentQuotes:
    """Quotes of a server with A100s, on which the job of `RECORD` was measured."""
    store = Store(f"sqlite:///{folder / 'x.db'}")
    store.write(Batch(speeds={"key": replace(A100, key="key@A100", device_type="A100")}))
    return RentQuotes(clouds, StateDir(folder), ["A100"], store)


def test_a_declined_job_is_told_what_renting_costs(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.submit(write_profiled(tmp_path / "a", deadline="8h", name="big"))
    answer = find_rent(client, "big")
    assert answer.answer == "declined"
    rent = answer.rent
    assert rent is not None and rent.plan is not None and rent.state == "offer"
    assert rent.sentence.startswith("meets the deadline with ")
    assert rent.plan["probability"] >= 0.9
    assert {part["device_type"] for part in rent.plan["parts"]} == {"T4"}
    assert client.why("big").rent == client.job("big").rent == rent
    submit.print_answer(answer)
    job_views.print_job(client.job("big"))
    job_views.print_explanation(client.why("big"))
    assert capsys.readouterr().out.count(f"renting {rent.sentence}") == 3


def test_a_submission_does_not_wait_for_it(client: Client, tmp_path: Path) -> None:
    job = write_profiled(tmp_path / "a", deadline="8h", name="first")
    client.submit(job)
    again = client.submit(write_profiled(tmp_path / "a", deadline="8h", name="second"), wait=False)
    assert again.answer == "declined"
    assert again.rent is None, "who reads the job is told"
    assert find_rent(client, "second").document["rent"]["state"] == "offer"


def test_a_deadline_that_renting_cannot_keep_either_gets_the_nearest(client: Client, tmp_path: Path) -> None:
    rent = find_rent(client, client.submit(write_profiled(tmp_path / "a", deadline="20m")).id).document["rent"]
    assert rent["state"] == "none"
    assert "would not keep the deadline either; the nearest is" in rent["sentence"]


def test_without_points_on_a_gpu_nothing_is_said(client: Client, tmp_path: Path) -> None:
    answer = client.submit(http_servers.write_project(tmp_path / "a", deadline="1h"))
    assert (answer.answer, answer.rent) == ("declined", None)


def test_a_profile_that_cannot_be_read_is_named(client: Client, tmp_path: Path) -> None:
    job = write_profiled(tmp_path / "a", deadline="1h")
    (tmp_path / "a" / "net.points.csv").write_text("model,step_s\nnet,1\n", encoding="utf-8")
    rent = find_rent(client, client.submit(job).id).document["rent"]
    assert rent["state"] == "unknown"
    assert "missing column" in rent["sentence"]


def test_an_admitted_job_is_told_nothing(client: Client, tmp_path: Path) -> None:
    assert client.submit(write_profiled(tmp_path / "a", deadline="20h")).rent is None


def test_what_the_platform_measured_on_gpus_is_enough() -> None:
    case = make_case(RECORD, A100, Path("nowhere"), "a100-sxm4-40gb")
    assert case is not None
    found = search_rent(case, ("aws",), 6 * HOUR)
    assert found is not None
    assert found["state"] == "offer"
    (part,) = found["plan"]["parts"]
    assert (part["device_type"], part["nodes"]) == ("A100", 1)


def test_points_of_this_platform_count_a_logical_worker_as_one_sample() -> None:
    points = list_measured(A100, "A100", 8)
    assert [(point.layout.devices, point.layout.local_batch) for point in points] == [(1, 8), (2, 4), (4, 2)]
    assert points[0].step_s == pytest.approx(0.5)


def test_cpu_slots_cannot_be_rented() -> None:
    case = make_case(RECORD, A100, Path("nowhere"), "cpu")
    assert case is not None
    assert search_rent(case, ("aws", "azure", "gcp"), 6 * HOUR) is None


@pytest.mark.parametrize(
    ("changes", "asks"),
    [
        ({}, True),
        ({"state": JobState.OFFERED}, True),
        ({"state": JobState.ADMITTED}, False),
        ({"reason": "quota_exceeded"}, False),
        ({"deadline_s": None}, False),
        ({"deadline_s": 50.0}, False),
    ],
)
def test_only_a_job_declined_for_lack_of_devices_asks(changes: dict[str, object], asks: bool) -> None:
    assert may_rent(replace(RECORD, **changes), 60.0) is asks  # type: ignore[arg-type]


def test_a_server_told_not_to_says_nothing(tmp_path: Path) -> None:
    assert make_quotes("none", tmp_path).find(RECORD, 0.0) is None


def test_a_broken_catalog_is_named_and_stops_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "springtide").mkdir()
    (tmp_path / "springtide" / "catalog.csv").write_text("cloud,price\n", encoding="utf-8")
    found = make_quotes("aws", tmp_path).find(RECORD, 0.0)
    assert found is not None
    assert found["state"] == "unknown"
    assert "missing column" in found["sentence"]


def test_clouds_are_read_by_name() -> None:
    assert read_clouds("aws, GCP") == ("aws", "gcp")
    assert read_clouds("none") == ()
    with pytest.raises(InputError, match="cloud 'mars' is unknown; there are aws, azure, gcp, or none"):
        read_clouds("aws,mars")
