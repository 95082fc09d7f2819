"""The pure parts of the local executor: verdicts, hangs, speeds, probes, changes of devices, environments."""

import fcntl
import json
import os
import pwd
import resource
import signal
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.errors import JobError
from springtide.executors.local import as_user
from springtide.executors.local.as_user import SystemUser, do_as, read_until
from springtide.executors.local.jobs import checkpoint_folder, environment
from springtide.executors.local.jobs.attempt import Workers, fit_devices, plan_change
from springtide.executors.local.jobs.checkpoint_folder import CheckpointFolder
from springtide.executors.local.jobs.exit_causes import (
    PEER_LOST,
    ExitEvidence,
    describe_code,
    find_cause,
    find_end_cause,
)
from springtide.executors.local.jobs.hangs import Patience, ProcessSample, Standstill, Watch
from springtide.executors.local.jobs.probe_runner import ProbeMeasurement
from springtide.executors.local.jobs.progress import Speedometer
from springtide.executors.local.processes.fork_servers import choose_identity
from springtide.executors.local.processes.worker_processes import WorkerProcess
from springtide.executors.protocol import CheckpointPolicy, JobSpec

ELASTIC = ExitEvidence(finished=True, connected=True, elastic=True)


@pytest.mark.parametrize(
    ("codes", "word", "process"),
    [
        ({"p0": 0, "p1": 0}, "finished", ""),
        ({"p0": 1, "p1": -9}, "killed", "p1"),
        ({"p0": 143, "p1": 143}, "killed", "p0"),
        ({"p1": 1, "p0": 1}, "crashed", "p1"),
        ({"p0": -11, "p1": 1}, "crashed", "p0"),
    ],
)
def test_codes_have_one_meaning(codes: dict[str, int], word: str, process: str) -> None:
    verdict = find_end_cause(codes, ELASTIC)
    assert (verdict.name, verdict.process) == (word, process)


@pytest.mark.parametrize(
    ("heard", "word"),
    [
        (ExitEvidence(finished=False, connected=True, elastic=True), "early_exit"),
        (ExitEvidence(finished=False, connected=False, elastic=True), "no_init"),
        (ExitEvidence(finished=False, connected=False, elastic=False), "finished"),
        (ExitEvidence(finished=False, connected=True, elastic=False), "early_exit"),
    ],
)
def test_ending_well_is_not_being_done(heard: ExitEvidence, word: str) -> None:
    assert find_end_cause({"p0": 0}, heard).name == word


def test_wrong_input_is_not_tried_again_and_a_good_end_is_no_verdict() -> None:
    wrong = find_cause({"p0": 2})
    assert wrong is not None and not wrong.can_retry
    assert find_cause({"p0": 0}) is None
    assert [describe_code(code) for code in (3, -9)] == ["ended with code 3", "was ended by SIGKILL"]


@given(st.dictionaries(st.sampled_from(["p0", "p1", "p2"]), st.integers(-31, 255), min_size=1))
def test_a_kill_from_outside_is_never_the_users_fault(codes: dict[str, int]) -> None:
    verdict = find_cause({**codes, "victim": -signal.SIGKILL})
    assert verdict is not None and verdict.name == "killed"


def look(watch: Watch, at_s: float, cpu_s: float, stepped_s: float | None, stopped: bool = False) -> str:
    hang = watch.check([ProcessSample("p0", stopped, cpu_s)], Standstill(stepped_s, 1.0), at_s)
    return hang.cause if hang is not None else ""


def test_a_stopped_process_is_found_soon_and_forgotten_when_it_goes_on() -> None:
    watch = Watch(Patience(stopped_s=3))
    assert [look(watch, at_s, 0, None, stopped=True) for at_s in (0, 2)] == ["", ""]
    assert look(watch, 2.5, 0, None, stopped=False) == ""
    assert [look(watch, at_s, 0, None, stopped=True) for at_s in (3, 5.9, 6)] == ["", "", "stopped"]


def test_a_blocked_collective_uses_no_processor() -> None:
    watch = Watch(Patience(idle_s=30))
    assert all(look(watch, at_s, 5.0, stepped_s=0.0) == "" for at_s in range(30))
    assert look(watch, 30, 5.0, stepped_s=0.0) == "hung"


def test_a_long_evaluation_is_no_hang_until_very_long() -> None:
    watch = Watch(Patience(idle_s=30, silent_s=900))
    assert all(look(watch, at_s, at_s * 0.9, stepped_s=0.0) == "" for at_s in range(900))
    assert look(watch, 900, 900.0, stepped_s=0.0) == "hung"


def test_before_the_first_step_nothing_but_a_stop_is_a_hang() -> None:
    watch = Watch(Patience())
    assert all(look(watch, at_s, 0.0, stepped_s=None) == "" for at_s in range(0, 5000, 100))


def test_slow_steps_earn_patience() -> None:
    watch = Watch(Patience(idle_s=30))
    slow = Standstill(0.0, 60.0)
    looks = [watch.check([ProcessSample("p0", False, 0.0)], slow, at_s) for at_s in range(0, 600, 10)]
    assert looks == [None] * 60
    assert watch.check([ProcessSample("p0", False, 0.0)], slow, 600) is not None


def find_first_hang(patience: Patience, standstill: Standstill) -> int:
    """The second at which a job that uses no processor is taken to hang."""
    watch, sample = Watch(patience), ProcessSample("p0", False, 0.0)
    return next(at_s for at_s in range(100_000) if watch.check([sample], standstill, at_s) is not None)


def test_between_epochs_only_a_very_long_silence_is_a_hang() -> None:
    assert find_first_hang(Patience(), Standstill(0.0)) == 30
    assert find_first_hang(Patience(), Standstill(0.0, is_outside=True)) == 900


def test_a_job_that_says_it_is_busy_does_not_hang_and_has_its_time_afterwards() -> None:
    watch, sample = Watch(Patience()), ProcessSample("p0", False, 0.0)
    busy, idle = Standstill(0.0, busy="uploading"), Standstill(0.0)
    assert all(watch.check([sample], busy, at_s) is None for at_s in range(5000))
    assert all(watch.check([sample], idle, at_s) is None for at_s in range(5000, 5029))
    assert watch.check([sample], idle, 5029) is not None


def test_patience_is_the_job_files_or_grows_with_every_hang() -> None:
    assert find_first_hang(Patience().given(3600.0), Standstill(0.0)) == 3600
    assert find_first_hang(Patience().given(5.0), Standstill(0.0)) == 5
    grown = [find_first_hang(Patience().after_hangs(count), Standstill(0.0)) for count in range(5)]
    assert grown == [30, 120, 480, 900, 900]


def test_speed_leaves_out_time_outside_steps() -> None:
    speed = Speedometer()
    for step in range(1, 11):
        speed.add_step(step, step * 0.5)
    speed.add_outside(7.0)
    speed.add_step(12, 5.0 + 7.0 + 1.0)
    assert speed.report() == pytest.approx(2.0)
    assert (speed.outside_s, speed.longest_gap_s) == (7.0, 8.0)
    assert speed.report() is None


def test_a_pause_is_not_counted_as_a_step() -> None:
    speed = Speedometer()
    speed.add_step(1, 0.0)
    speed.add_step(2, 1.0)
    speed.pause()
    speed.add_step(3, 100.0)
    speed.add_step(4, 100.5)
    assert speed.report() == pytest.approx(2.0)


def test_a_probe_shares_its_bound_among_shares() -> None:
    probe = ProbeMeasurement(shares=2, max_steps=30, max_s=15)
    steps = [probe.add_step(step, step * 0.1) for step in range(1, 16)]
    assert steps == [False] * 14 + [True]
    probe.close(1.5)
    assert (probe.share, probe.is_last) == (2, True)
    assert not probe.add_step(20, 5.0)
    assert not probe.is_over(12.4) and probe.is_over(12.5)
    assert not probe.add_step(21, 9.0)
    probe.close(12.5)
    assert [(point.share, point.steps) for point in probe.points] == [(1, 14), (2, 1)]
    assert [point.steps_per_s for point in probe.points] == pytest.approx([10.0, 0.25])


def test_a_share_without_a_whole_step_is_at_most_so_fast_alone_and_no_point_beside_others() -> None:
    probe = ProbeMeasurement(shares=2, max_steps=30, max_s=15)
    probe.add_step(1, 0.0)
    assert probe.is_over(7.5)
    probe.close(7.5)
    probe.add_step(2, 10.0)
    probe.close(15.0)
    (point,) = probe.points
    assert (point.share, point.steps) == (1, 0) and point.steps_per_s == pytest.approx(1 / 7.5)


devices = st.lists(st.sampled_from([f"gpu:{k}" for k in range(8)]), min_size=1, max_size=8, unique=True)


@given(devices, devices, st.integers(8, 20))
def test_a_change_keeps_those_who_stay(held: list[str], wanted: list[str], workers: int) -> None:
    before = {f"p{rank}": device for rank, device in enumerate(held)}
    change = plan_change(before, wanted, Workers(workers), len(held))
    after = {name: before.get(name) or change.joiners[name] for name in change.roster.names}
    assert sorted(after.values()) == sorted(wanted)
    assert change.roster.logical_workers == workers
    assert set(before) & set(after) == {name for name, device in before.items() if device in wanted}
    assert not set(change.joiners) & set(before)


def test_workers_go_where_they_are_asked_for_whatever_the_ranks() -> None:
    asked = Workers(4, {"slow": 1, "fast": 3})
    change = plan_change({"p0": "fast"}, ["slow", "fast"], asked, 1)
    assert str(change.roster) == "p0:3,p1:1"
    assert asked.spread_over(["slow", "fast"]) == (1, 3)


@pytest.mark.parametrize(
    "asked",
    [{"a": 4}, {"a": 2, "b": 3}, {"a": 4, "b": 0}, {"b": 4, "c": 0}, {}],
    ids=["one device missing", "too many", "an idle device", "other devices", "nobody asked"],
)
def test_a_mapping_that_does_not_fit_is_replaced_by_an_even_one(asked: dict[str, int]) -> None:
    assert Workers(4, asked).spread_over(["a", "b"]) == (2, 2)


def test_devices_beyond_the_logical_workers_are_left() -> None:
    assert fit_devices(("a", "b", "c"), 2) == ("a", "b")
    assert fit_devices(("a", "b", "c"), None) == ("a",)


def spec(*argv: str, folder: str = "/code", **fields: object) -> JobSpec:
    return JobSpec(argv, folder, CheckpointPolicy("/c"), "/o", "/l", **fields)  # type: ignore[arg-type]


def test_only_the_allowed_part_of_our_environment_gets_through() -> None:
    ours = {"PATH": "/bin", "HOME": "/root", "LANG": "C", "AWS_SECRET": "x", "PYTHONPATH": "/evil", "LC_ALL": "C"}
    assert environment.allow(ours) == {"PATH": "/bin", "HOME": "/root", "LANG": "C"}


def test_variables_read_at_import_choose_the_fork_server() -> None:
    plain = environment.choose_early(spec("python", "train.py", env={"COLOUR": "blue"}))
    assert plain == environment.choose_early(spec("python", "other.py"))
    assert plain["OMP_NUM_THREADS"] == "1"
    tuned = environment.choose_early(spec("python", "train.py", env={"KMP_AFFINITY": "compact", "OMP_SCHEDULE": "x"}))
    assert tuned == {**plain, "KMP_AFFINITY": "compact", "OMP_SCHEDULE": "x"}


def test_a_job_cannot_speak_in_our_name() -> None:
    assert environment.choose_own(spec("python", "t.py", env={"SPRINGTIDE_STORE": "evil:1", "A": "1"})) == {"A": "1"}


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (("python", "train.py", "--lr", "1"), ("train.py", ("--lr", "1"))),
        (("/usr/bin/python3", "train.py"), ("train.py", ())),
        (("python", "-m", "train"), None),
        (("python",), None),
        (("torchrun", "train.py"), None),
    ],
)
def test_scripts_are_told_from_commands(argv: tuple[str, ...], found: object) -> None:
    assert environment.find_script(spec(*argv)) == found


def test_a_command_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="empty"):
        environment.check_command(spec())
    with pytest.raises(JobError, match=r"missing\.py"):
        environment.check_command(spec("python", "missing.py", folder=str(tmp_path)))
    environment.check_command(spec("python", "-m", "anything"))


def test_secrets_are_read_from_their_file_and_their_loss_is_said(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text(json.dumps({"KEY": "hush"}))
    assert environment.read_secrets(spec(secrets_file=str(file))) == {"KEY": "hush"}
    file.write_text("hush")
    with pytest.raises(JobError, match="submit again") as caught:
        environment.read_secrets(spec(secrets_file=str(file)))
    assert "hush" not in str(caught.value)


def test_a_process_is_late_only_if_it_runs_and_has_not_called() -> None:
    assert WorkerProcess("p0", forked_s=0.0).is_late(60.0, 60.0)
    assert not WorkerProcess("p0", forked_s=0.0).is_late(59.0, 60.0)
    assert not WorkerProcess("p0", forked_s=0.0, connected=True).is_late(99.0, 60.0)
    assert not WorkerProcess("p0").is_late(99.0, 60.0)


def test_only_whole_checkpoints_count(tmp_path: Path) -> None:
    shelf = CheckpointFolder(tmp_path)
    assert (shelf.find_step(), shelf.measure(), shelf.find_new()) == (-1, 0, None)
    for name in ("step-000000010", "step-000000009", ".writing-12-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    (tmp_path / "step-000000011").mkdir()
    assert (shelf.find_step(), shelf.measure()) == (10, 2)
    assert (shelf.find_new(), shelf.find_new()) == (10, None)


def test_a_folder_that_does_not_tell_is_not_one_without_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointFolder(tmp_path / "none")
    assert folder.find_step() == -1
    (tmp_path / "step-000000010").mkdir()
    (tmp_path / "step-000000010" / "manifest.json").write_text("{}")
    for error in (TimeoutError(0, "it took too long"), PermissionError(13, "Permission denied")):

        def listdir(_path: object, error: OSError = error) -> list[str]:
            raise error

        folder = CheckpointFolder(tmp_path)
        assert folder.find_new() == 10
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", listdir)
            with pytest.raises(type(error)):
                folder.find_step()
            assert (folder.find_saved(-1), folder.find_saved(30), folder.find_new(), folder.measure()) == (
                10,
                30,
                None,
                0,
            )
    with pytest.raises(OSError, match="no user"):
        CheckpointFolder(tmp_path, "nobody-of-this-name").find_step()


def test_a_folder_on_a_disk_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent looks at the folders of all jobs in turn; one on a dead mount stopped it, and so all jobs."""
    over, asked = threading.Event(), list[object]()

    def listdir(path: object) -> list[str]:
        asked.append(path)
        over.wait()
        return []

    monkeypatch.setattr(os, "listdir", listdir)
    monkeypatch.setattr(checkpoint_folder, "LOOK_S", 0.1)
    folder = CheckpointFolder(tmp_path)
    assert [folder.find_new() for _ in range(20)] == [None] * 20 and len(asked) == 1
    over.set()


def test_a_job_of_another_user_has_that_users_groups_and_home_only() -> None:
    user = pwd.getpwuid(os.getuid())
    identity = choose_identity(user.pw_name)
    assert (identity["user"], identity["group"]) == (user.pw_uid, user.pw_gid)
    assert set(identity["extra_groups"]) == set(os.getgrouplist(user.pw_name, user.pw_gid))
    assert choose_identity(None) == {}
    assert environment.find_home(spec("python", "t.py", run_as=user.pw_name)) == {"HOME": user.pw_dir}


def test_the_hash_of_the_last_weights_is_read_from_a_plain_manifest_only(tmp_path: Path) -> None:
    folder, weights = CheckpointFolder(tmp_path), "0f" * 32
    assert folder.find_weights() == ""
    for step, text in enumerate(("no json", "[]", '{"files": {"model.safetensors": {"sha256": "\x1b[2J"}}}')):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "manifest.json").write_text(text)
        assert folder.find_weights() == ""
    (tmp_path / "step-8").mkdir()
    (tmp_path / "step-8" / "manifest.json").write_text(
        json.dumps({"files": {"model.safetensors": {"sha256": weights}}})
    )
    assert folder.find_weights() == weights
    (tmp_path / "step-9").mkdir()
    (tmp_path / "step-9" / "manifest.json").symlink_to(tmp_path / "step-8" / "manifest.json")
    assert folder.find_weights() == ""


def test_a_process_that_lost_its_peer_is_not_to_blame() -> None:
    alone = find_cause({"p0": 75})
    assert alone is not None and (alone.name, alone.can_retry) == ("peer_lost", True)
    by_crash, by_kill = find_cause({"p0": 75, "p1": 1}), find_cause({"p0": 75, "p1": -signal.SIGKILL})
    assert by_crash is not None and (by_crash.name, by_crash.process) == ("crashed", "p1")
    assert by_kill is not None and (by_kill.name, by_kill.process) == ("killed", "p1")


def test_a_gang_knows_its_hosts_as_under_torchrun() -> None:
    hosts = ["blue", "blue", "red"]
    said = [environment.write_torchrun(rank, hosts, "10.0.0.1:29500", 0) for rank in range(3)]
    assert [one["LOCAL_RANK"] for one in said] == ["0", "1", "0"]
    assert [one["GROUP_RANK"] for one in said] == ["0", "0", "1"]
    assert [one["LOCAL_WORLD_SIZE"] for one in said] == ["2", "2", "1"]
    assert {(one["GROUP_WORLD_SIZE"], one["WORLD_SIZE"], one["MASTER_ADDR"]) for one in said} == {
        ("2", "3", "10.0.0.1")
    }


def test_a_connection_that_is_lost_between_hosts_that_answer_says_where_to_look() -> None:
    cause = find_cause({"p0": PEER_LOST, "p1": PEER_LOST})
    assert cause is not None and cause.name == "peer_lost"
    assert cause.describe(("h2", "h1", "h1")).endswith("or drain one of them")
    assert "though hosts h1, h2 all answer" in cause.describe(("h2", "h1", "h1"))
    assert cause.describe(("", "")) == cause.describe() == "process p0 lost its connection to another one"


def test_what_another_process_says_is_read_beyond_a_thousand_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1100), hard))
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD, 1050)
    try:
        os.write(writing, b"said")
        with pytest.raises(TimeoutError):
            read_until(high, time.monotonic() + 0.05)
        os.write(writing, b"all")
        os.close(writing)
        assert read_until(high, time.monotonic() + 5) == b"all"
    finally:
        os.close(reading)
        os.close(high)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_fork_that_fails_leaves_no_descriptor_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(as_user, "find_user", lambda name: SystemUser(os.getuid(), os.getgid(), [], "/"))
    monkeypatch.setattr(os, "fork", fail)
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            do_as("somebody", list)
    assert set(os.listdir("/proc/self/fd")) == before
