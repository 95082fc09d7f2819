"""A host's own disk: code by its digest, receipts passed on, and who is given the credentials of a store."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.errors import ExecutorError
from springtide.executors.hosts import host_agent, own_disk
from springtide.executors.hosts.checkpoint_receipts import ReceiptWatch, keep_receipt
from springtide.executors.hosts.host_agent import HostSettings
from springtide.executors.hosts.host_messages import OpenStart, SpawnWorker, WantCode, write
from springtide.executors.hosts.lead_dialer import RefusedError
from springtide.executors.hosts.own_disk import (
    FOLDERS,
    OwnDisk,
    drop_folders,
    drop_paths,
    find_obstacle,
    find_variables,
)
from springtide.executors.hosts.packed_code import PART_BYTES, PackedCode
from springtide.executors.local.jobs.environment import make_settings, read_portable, read_private
from springtide.executors.protocol import CheckpointPolicy, JobPreparation, JobSpec
from springtide.training.settings import write_settings

SPEC = JobSpec(
    ("python", "train.py"), "", CheckpointPolicy("/there/checkpoints", url="s3://b/job"), "/there/o", "/there/l"
)


def make_source(folder: Path) -> Path:
    (folder / "deep").mkdir(parents=True)
    (folder / "train.py").write_text("print('hello')")
    (folder / "deep" / "data.bin").write_bytes(bytes(range(256)) * 10_000)
    (folder / "link").symlink_to("/etc/passwd")
    return folder


def test_code_arrives_piece_by_piece_once_and_its_starts_then_begin(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source")
    lead, asked = PackedCode(tmp_path / "lead"), list[WantCode]()
    disk, digest = OwnDisk(tmp_path / "host", asked.append), lead.pack(str(source))
    orders = [OpenStart("open", start, "job", SPEC, {}, digest) for start in ("one", "two")]
    assert not any(disk.has_code(order) for order in orders)
    later = SpawnWorker("spawn", "two", "p0", "cpu:0", {}, ())
    disk.awaited["two"].later.append(later)
    ready = []
    while asked:
        want = asked.pop()
        ready = disk.take(lead.read(want.digest, want.offset))
    assert [(one.order, one.later) for one in ready] == [(orders[0], []), (orders[1], [later])]
    assert (tmp_path / "lead" / digest).stat().st_size > 2 * PART_BYTES, "it took several pieces"
    assert disk.has_code(orders[0]) and not asked
    found = {str(path.relative_to(disk.code / digest)) for path in (disk.code / digest).rglob("*") if path.is_file()}
    assert found == {"train.py", "deep/data.bin"}, "links are left out"
    assert PackedCode(tmp_path / "other").pack(str(source)) == digest, "the same files, the same digest"


def test_code_that_is_not_there_or_damaged_is_refused(tmp_path: Path) -> None:
    asked = list[WantCode]()
    disk, lead = OwnDisk(tmp_path / "host", asked.append), PackedCode(tmp_path / "lead")
    order = OpenStart("open", "one", "job", SPEC, {}, "0" * 64)
    assert not disk.has_code(order)
    with pytest.raises(ExecutorError, match="the lead has no code 000000000000"):
        disk.take(lead.read(asked[0].digest, 0))
    (tmp_path / "lead").mkdir()
    (tmp_path / "lead" / order.code).write_bytes(b"something else")
    disk.take(lead.read(order.code, 0))
    with pytest.raises(ExecutorError, match="the connection to the lead is damaged"):
        disk.take(lead.read(order.code, 14))
    assert [one.order for one in disk.give_up(order.code)] == [order] and not disk.has_code(order)


def test_paths_are_the_hosts_and_variables_follow(tmp_path: Path) -> None:
    disk = OwnDisk(tmp_path, lambda want: None)
    placed = disk.rehome(OpenStart("open", "one", "job", SPEC, {}, "a" * 64)).spec
    paths = (placed.folder, placed.output_dir, placed.log_dir, placed.checkpoint.dir)
    assert all(path.startswith(str(tmp_path)) for path in paths) and placed.checkpoint.url == SPEC.checkpoint.url
    assert find_variables(placed)["SPRINGTIDE_CHECKPOINT_DIR"] == placed.checkpoint.dir
    assert find_variables(placed)["SPRINGTIDE_OUTPUT"] == placed.output_dir


def test_a_host_that_does_not_see_the_home_is_told_no_path_of_it(tmp_path: Path) -> None:
    secret = replace(SPEC, folder="/there/code", home_dir="/there", secrets_file="/there/secrets.json")
    spec = replace(secret, preparation=JobPreparation("/there/code", "/there/in", "/there/cache", ("make",)))
    attempt = make_settings(spec)
    variables = {**write_settings(attempt), "SPRINGTIDE_INPUTS": "/there/in", "SPRINGTIDE_STORE": "10.0.0.5:1"}
    assert sum(value.startswith("/there") for value in variables.values()) == 4, "all that name folders"
    opened = OpenStart("open", "one", "job", drop_paths(spec), {}, "a" * 64)
    spawned = SpawnWorker("spawn", "one", "p0", "cpu:0", drop_folders(variables), ())
    assert "/there" not in json.dumps([write(opened), write(spawned)])
    assert drop_folders(variables)["SPRINGTIDE_STORE"] == "10.0.0.5:1"
    assert drop_paths(spec).checkpoint.url == spec.checkpoint.url
    placed = OwnDisk(tmp_path, lambda want: None).rehome(opened)
    assert set(find_variables(placed.spec)) <= set(FOLDERS)


def test_a_job_that_needs_the_home_says_so() -> None:
    given = replace(SPEC, checkpoint=CheckpointPolicy("/data", is_given=True))
    prepared = replace(SPEC, preparation=JobPreparation("", "", "", inputs={"data": "/data"}))
    needing = [given, prepared, replace(SPEC, outputs=("model.pt",)), replace(SPEC, run_as="ann")]
    assert find_obstacle(SPEC) == "" and all(find_obstacle(spec) for spec in needing)


def test_receipts_are_passed_on_once_and_the_oldest_go(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    watch = ReceiptWatch(there)
    for step in (5, 10, 15):
        (there / f"step-{step:09d}").mkdir(parents=True)
        (there / f"step-{step:09d}" / "manifest.json").write_text(f'{{"step": {step}}}')
        for name, manifest in watch.list_new():
            keep_receipt(here, name, manifest, keep=2)
    assert watch.list_new() == []
    assert sorted(path.name for path in here.iterdir()) == ["step-000000010", "step-000000015"]
    with pytest.raises(ValueError, match=r"'\.\./x', which is no checkpoint's name"):
        keep_receipt(here, "../x", "{}", keep=2)


def test_a_stores_credentials_go_to_jobs_that_use_it_and_run_as_its_owner() -> None:
    environ = {"AWS_ACCESS_KEY_ID": "k", "AWS_REGION": "r", "SHELL": "sh"}
    assert read_private(SPEC, environ) == {"AWS_ACCESS_KEY_ID": "k", "AWS_REGION": "r"}
    assert read_private(replace(SPEC, env={"AWS_REGION": "mine"}), environ) == {"AWS_ACCESS_KEY_ID": "k"}
    assert read_private(replace(SPEC, run_as="ann"), environ) == {}
    assert read_private(replace(SPEC, checkpoint=CheckpointPolicy("/data")), environ) == {}


def test_names_of_files_on_the_servers_disk_are_not_told_to_hosts_with_one_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's file is not there, and the host's own would be hidden behind its name."""
    environ = {"AWS_REGION": "r", "AWS_WEB_IDENTITY_TOKEN_FILE": "/there/token", "AWS_PROFILE": "there"}
    assert read_private(SPEC, environ) == environ
    told = read_portable(SPEC, environ)
    assert told == {"AWS_REGION": "r"}
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/here/token")
    disk = OwnDisk(tmp_path, lambda want: None)
    placed = disk.rehome(OpenStart("open", "one", "job", SPEC, told, "a" * 64))
    assert placed.private == {"AWS_REGION": "r", "AWS_WEB_IDENTITY_TOKEN_FILE": "/here/token"}
    own = {"GOOGLE_APPLICATION_CREDENTIALS": "key.json"}
    assert read_portable(replace(SPEC, env=own), {**environ, **own}) == told, "the job's own go with its spec"


def test_what_no_start_uses_goes_after_a_while_and_at_once_where_room_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OwnDisk(tmp_path, lambda want: None)
    for name in ("used", "past"):
        (disk.code / name).mkdir()
        (disk.jobs / name).mkdir()
    used = {str(disk.code / "used"), str(disk.jobs / "used")}
    disk.sweep(used, 0.0)
    disk.sweep(used, own_disk.KEPT_S - 1)
    assert len([*disk.code.iterdir(), *disk.jobs.iterdir()]) == 4
    disk.sweep(used, own_disk.KEPT_S)
    assert {*map(str, disk.code.iterdir()), *map(str, disk.jobs.iterdir())} == used
    monkeypatch.setattr(own_disk, "SHORT_BYTES", 1 << 62)
    disk.sweep(set(), own_disk.KEPT_S)
    assert not [*disk.code.iterdir(), *disk.jobs.iterdir()]


def test_a_host_that_its_own_jobs_have_filled_is_asked_whether_it_is_fit_when_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is refused for want of room would never come to the place where room is made."""
    left = OwnDisk(tmp_path, lambda want: None)
    (left.jobs / "large").mkdir()

    def refuse(host: str, state_dir: Path) -> None:
        raise RefusedError("no room" if (left.jobs / "large").exists() else "it was looked at later")

    told: list[str] = []
    monkeypatch.setattr(host_agent, "check_fitness", refuse)
    monkeypatch.setattr(host_agent, "adopt_orphans", lambda: None)
    monkeypatch.setattr("builtins.print", lambda text, flush: told.append(text))
    assert host_agent.run(HostSettings(tmp_path, "h1", state_dir=tmp_path)) == 2
    assert told == ["refused: it was looked at later"]
