"""Weights brought from a server: whole or not at all, from where a transfer broke off, and only the owner's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.control.http_servers import connect, run_server, write_project

from springtide.cli.app import main
from springtide.client.client import Client
from springtide.client.fetching import WEIGHTS, Transfer, check_parts, hold
from springtide.client.replies import JobInfo
from springtide.control.server import Server
from springtide.errors import InputError, ServerError
from springtide.executors.local.jobs.worker_logs import RotatingLog
from springtide.training.state.checkpoints import MANIFEST, REST, SHAPE, Checkpoints, Facts

FACTS = Facts(4, 0, 96, 4, 1, True, True, "D1", 1, "code")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with connect(server) as client:
        yield client


@pytest.fixture
def job(server: Server, client: Client, tmp_path: Path) -> JobInfo:
    """A job that has ended, with checkpoints of two steps that the runtime itself has written."""
    job = client.wait(client.submit(write_project(tmp_path / "project")))
    save(server, job, 3)
    save(server, job, 7)
    return job


def save(server: Server, job: JobInfo, step: int) -> None:
    saved = Checkpoints(server.settings.state_dir.checkpoints(job.id), keep=5)
    weights = {"weight": torch.arange(6.0).reshape(2, 3) + step, "bias": torch.full((2,), float(step))}
    saved.save({"model": weights, "user": {"seen": step}}, step, FACTS)
    saved.wait()


def test_the_newest_weights_are_what_load_state_dict_takes(client: Client, job: JobInfo, tmp_path: Path) -> None:
    fetched = client.fetch(job, tmp_path / "out")
    assert (fetched.step, [file.name for file in fetched.files]) == (7, [WEIGHTS])
    model = torch.nn.Linear(3, 2)
    model.load_state_dict(load_file(fetched.weights))
    assert model.bias.tolist() == [7.0, 7.0]


def test_a_whole_checkpoint_can_be_resumed_from(client: Client, job: JobInfo, tmp_path: Path) -> None:
    fetched = client.fetch(job, tmp_path / "out", checkpoint=3, whole=True)
    assert {file.name for file in fetched.files} == {WEIGHTS, REST, SHAPE, MANIFEST}
    saved = Checkpoints(tmp_path / "out", keep=5).load(FACTS, allow_code_change=False)
    assert saved is not None and (saved.step, saved.state["user"]) == (3, {"seen": 3})


def test_a_transfer_goes_on_where_it_broke_off(client: Client, job: JobInfo, tmp_path: Path) -> None:
    whole = client.fetch(job, tmp_path / "whole").weights.read_bytes()
    folder = tmp_path / "out" / "step-000000007"
    folder.mkdir(parents=True)
    (folder / f"{WEIGHTS}.part").write_bytes(whole[:50])
    counted: list[int] = []
    fetched = client.fetch(job, tmp_path / "out", on_bytes=counted.append)
    assert fetched.weights.read_bytes() == whole
    assert sum(counted) == len(whole) - 50
    client.fetch(job, tmp_path / "out", on_bytes=counted.append)
    assert sum(counted) == len(whole) - 50, "what is here already is not brought again"


def test_what_arrives_damaged_is_thrown_away(client: Client, job: JobInfo, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "step-000000007"
    folder.mkdir(parents=True)
    (folder / f"{WEIGHTS}.part").write_bytes(b"of something else")
    with pytest.raises(ServerError, match="did not arrive with the hash"):
        client.fetch(job, tmp_path / "out")
    assert list(folder.iterdir()) == []


def test_two_commands_do_not_write_to_one_file(client: Client, job: JobInfo, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "step-000000007"
    folder.mkdir(parents=True)
    with hold(folder / f"{WEIGHTS}.part"), pytest.raises(InputError, match="another command is fetching"):
        client.fetch(job, tmp_path / "out")
    assert not list(folder.iterdir())
    client.fetch(job, tmp_path / "out")
    assert [file.name for file in folder.iterdir()] == [WEIGHTS]


def test_what_is_here_must_be_what_came(
    client: Client, job: JobInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who knows of no lock writes to the same file: what came has the hash, what is here has not."""
    partial = tmp_path / "out" / "step-000000007" / f"{WEIGHTS}.part"

    def write_beside(transfer: Transfer, *given: Any) -> None:
        append_rest(transfer, *given)
        with partial.open("ab") as file:
            file.write(b"more")

    append_rest = Transfer.append_rest
    monkeypatch.setattr(Transfer, "append_rest", write_beside)
    with pytest.raises(ServerError, match="thrown away"):
        client.fetch(job, tmp_path / "out")
    assert not partial.exists()


def test_a_part_of_a_file_is_answered_as_http_says(client: Client, job: JobInfo) -> None:
    path = f"/api/v1/jobs/{job.id}/checkpoints/7/{WEIGHTS}"
    whole = client.send("GET", path)
    assert (whole.status_code, whole.headers["accept-ranges"]) == (200, "bytes")
    size = len(whole.content)
    part = client.send("GET", path, headers={"Range": "bytes=10-"})
    assert (part.status_code, part.content) == (206, whole.content[10:])
    assert part.headers["content-range"] == f"bytes 10-{size - 1}/{size}"
    for wanted in (f"bytes={size + 1}-", "bytes=-5", "lines=1-"):
        assert client.send("GET", path, headers={"Range": wanted}).status_code == 422
    assert client.send("GET", path, headers={"Range": f"bytes={size}-"}).content == b""


def test_only_the_owner_of_a_job_reads_its_checkpoints(
    server: Server, client: Client, job: JobInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = client.put_user("bob").token
    assert token is not None
    monkeypatch.setenv("SPRINGTIDE_URL", server.url)
    monkeypatch.setenv("SPRINGTIDE_TOKEN", token)
    fetch = [str(Path(sys.executable).with_name("springtide")), "fetch", job.id, "--out", str(tmp_path / "stolen")]
    refused = subprocess.run(fetch, capture_output=True, text=True)
    assert refused.returncode and f"there is no job {job.id}" in refused.stderr.replace("'", "")
    assert not (tmp_path / "stolen").exists()
    with connect(server, token) as stranger, pytest.raises(InputError, match="there is no job"):
        stranger.checkpoints(job.id)
    with connect(server, token) as stranger:
        path = f"/api/v1/jobs/{job.id}/checkpoints/7/{WEIGHTS}"
        assert stranger.send("GET", path).status_code == 404


def test_links_that_a_job_has_put_there_lead_nowhere(server: Server, client: Client, job: JobInfo) -> None:
    folder = server.settings.state_dir.checkpoints(job.id)
    (folder / "step-000000007" / WEIGHTS).unlink()
    (folder / "step-000000007" / WEIGHTS).symlink_to(server.settings.state_dir.token)
    assert client.send("GET", f"/api/v1/jobs/{job.id}/checkpoints/7/{WEIGHTS}").status_code == 404
    os.symlink(folder / "step-000000003", folder / "step-000000009")
    assert [one.step for one in client.checkpoints(job)] == [7, 3]
    for name in ("state.pt", "..%2F..%2Ftoken", "config.json"):
        assert client.send("GET", f"/api/v1/jobs/{job.id}/checkpoints/3/{name}").status_code in (404, 422)


def test_checkpoints_elsewhere_are_not_read_for_anyone(client: Client, tmp_path: Path) -> None:
    job = client.wait(client.submit(write_project(tmp_path / "project", checkpoint={"dir": str(tmp_path)})))
    with pytest.raises(InputError, match="take its checkpoints from there"):
        client.fetch(job)


def test_what_is_not_there_is_said(client: Client, job: JobInfo, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no checkpoint of step 5; there are: 7, 3"):
        client.fetch(job, tmp_path / "out", checkpoint=5)
    other = client.wait(client.submit(write_project(tmp_path / "other")))
    with pytest.raises(InputError, match="has no checkpoint yet"):
        client.fetch(other, tmp_path / "out")


def test_the_command_says_what_has_come_and_how_it_is_used(
    server: Server, job: JobInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPRINGTIDE_HOME", str(server.settings.state_dir.root))
    monkeypatch.setenv("SPRINGTIDE_URL", server.url)
    with pytest.raises(SystemExit):
        main(["fetch", job.id, "--list"])
    assert capsys.readouterr().out.split("\n")[1].startswith("7 ")
    with pytest.raises(SystemExit):
        main(["fetch", job.id, "--checkpoint", "3", "--out", str(tmp_path / "out")])
    said = capsys.readouterr().out
    assert "step 3" in said and "model.load_state_dict(safetensors.torch.load_file(" in said
    assert (tmp_path / "out" / "step-000000003" / WEIGHTS).is_file()


@pytest.fixture
def left(server: Server, job: JobInfo) -> JobInfo:
    """The job with output of its own and a log."""
    home = server.settings.state_dir
    (home.output(job.id) / "plots").mkdir(parents=True)
    (home.output(job.id) / "plots" / "loss curve.png").write_bytes(bytes(range(256)) * 10)
    (home.output(job.id) / "notes.txt").write_text("done\n")
    log = RotatingLog(home.logs(job.id) / "rank-0.log", files=3, file_bytes=1000)
    for number in range(350):
        log.write(f"line {number:04d}\n".encode(), float(number))
    log.close()
    return job


def test_all_that_a_job_left_is_one_tree(client: Client, left: JobInfo) -> None:
    files = {one.path: one for one in client.files(left)}
    assert {"output/notes.txt", "output/plots/loss curve.png", "logs/rank-0.log"} <= set(files)
    assert files["checkpoints/step-000000007/model.safetensors"].sha256 is not None
    assert files["logs/rank-0.log"].size == 2500, "three files, one log"


def test_files_are_fetched_by_folder_and_pattern_once(client: Client, left: JobInfo, tmp_path: Path) -> None:
    counted: list[int] = []
    brought = client.fetch_files(left, ["output/plots/*.png", "logs"], tmp_path / "out", counted.append)
    names = {str(path.relative_to(tmp_path / "out")) for path in brought}
    assert names == {"output/plots/loss curve.png", "logs/rank-0.log"}
    assert (tmp_path / "out/output/plots/loss curve.png").read_bytes() == bytes(range(256)) * 10
    assert (tmp_path / "out/logs/rank-0.log").read_text().startswith("line 0100\n")
    before = sum(counted)
    client.fetch_files(left, ["output/plots", "logs"], tmp_path / "out", counted.append)
    assert sum(counted) == before, "what is here already is not brought again"
    with pytest.raises(InputError, match="has no file 'output/nothing'; list them with"):
        client.fetch_files(left, ["output/nothing"], tmp_path / "out")


def test_a_broken_transfer_of_a_file_goes_on_unless_the_file_has_changed(
    server: Server, client: Client, left: JobInfo, tmp_path: Path
) -> None:
    told = next(one for one in client.files(left) if one.path == "output/plots/loss curve.png")
    folder = tmp_path / "out" / "output" / "plots"
    folder.mkdir(parents=True)
    (folder / f"loss curve.png.{told.version}.part").write_bytes((bytes(range(256)) * 10)[:1000])
    counted: list[int] = []
    client.fetch_files(left, ["output/plots"], tmp_path / "out", counted.append)
    assert sum(counted) == told.size - 1000
    assert (folder / "loss curve.png").read_bytes() == bytes(range(256)) * 10
    path = f"/api/v1/jobs/{left.id}/files/output/plots/loss%20curve.png"
    part = client.send("GET", path, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, bytes(range(10, 20)))
    (server.settings.state_dir.output(left.id) / "plots" / "loss curve.png").write_bytes(b"new")
    assert client.send("GET", path, headers={"If-Match": f'"{told.version}"'}).status_code == 409
    client.fetch_files(left, ["output/plots"], tmp_path / "out")
    assert (folder / "loss curve.png").read_bytes() == b"new"


def test_no_file_leads_out_of_the_tree_and_no_stranger_into_it(
    server: Server, client: Client, left: JobInfo, tmp_path: Path
) -> None:
    home = server.settings.state_dir
    (home.output(left.id) / "token").symlink_to(home.token)
    (home.output(left.id) / "all").symlink_to(home.root)
    os.mkfifo(home.output(left.id) / "pipe")
    (home.output(left.id) / os.fsdecode(b"\xff")).write_text("no text")
    assert {one.path for one in client.files(left) if one.path.startswith("output")} == {
        *("output/notes.txt", "output/plots/loss curve.png")
    }
    for path in (
        "output/token",
        "output/all/token",
        "output/pipe",
        "output/..%2F..%2F..%2Ftoken",
        "secrets.json",
        "logs",
    ):
        assert client.send("GET", f"/api/v1/jobs/{left.id}/files/{path}").status_code == 404
    token = client.put_user("mallory").token
    with connect(server, token) as stranger:
        with pytest.raises(InputError, match="there is no job"):
            stranger.files(left.id)
        with pytest.raises(InputError, match="there is no job"):
            stranger.fetch_files(left.id, out=tmp_path / "stolen")
        assert not (tmp_path / "stolen").exists()
        assert stranger.send("GET", f"/api/v1/jobs/{left.id}/files/output/notes.txt").status_code == 404


def test_a_server_cannot_write_outside_the_folder(tmp_path: Path) -> None:
    for path in ("output/../../x", "/etc/x", "output//x"):
        with pytest.raises(ServerError, match="outside the folder"):
            check_parts(path)


def test_the_commands_list_and_fetch_files(
    server: Server, left: JobInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPRINGTIDE_HOME", str(server.settings.state_dir.root))
    monkeypatch.setenv("SPRINGTIDE_URL", server.url)
    with pytest.raises(SystemExit):
        main(["ls", left.id, "output"])
    assert "output/plots/loss curve.png" in (said := capsys.readouterr().out) and "2 files, 2.6 kB" in said
    with pytest.raises(SystemExit):
        main(["fetch", left.id, "--outputs", "--logs", "--out", str(tmp_path / "out")])
    assert (tmp_path / "out" / "output" / "notes.txt").read_text() == "done\n"
