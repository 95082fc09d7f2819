"""Real processes, real gloo: jobs start, grow, shrink, stop, fail, and leave nothing behind."""

import json
import os
import threading
from pathlib import Path
from textwrap import dedent

import psutil
import pytest
from tests.executors.local.agents import BOTH, RecordedAgent

import springtide.examples
from springtide.control.storage.job_logs import pick_entries
from springtide.errors import ExecutorError
from springtide.executors.local.executor import LocalExecutor
from springtide.executors.local.json_connections import listen
from springtide.executors.protocol import (
    Cancel,
    Failed,
    Faulted,
    Finished,
    Ignored,
    Probe,
    Probed,
    Progressed,
    Resize,
    Resized,
    ScriptInfo,
    Start,
    Started,
    Stop,
    Stopped,
)

EXAMPLES = Path(springtide.examples.__path__[0])


def test_a_job_grows_moves_and_shrinks_in_place_to_the_same_bits(recorded: RecordedAgent) -> None:
    job = recorded.tiny("--steps", "40")
    info = recorded.wait_for_kind(job, ScriptInfo)
    assert (info.logical_workers, info.total_steps, info.steps_per_epoch, info.device_type) == (4, 40, 10, "cpu")
    first = recorded.pids(job)
    recorded.resize(job, 2, *BOTH)
    assert recorded.wait_for_kind(job, Resized).devices == BOTH
    assert set(first) < set(recorded.pids(job))
    found = recorded.find(job)
    assert found is not None and sorted(found.pid_devices) == list(BOTH) and found.uuids == dict.fromkeys(BOTH, "")
    recorded.resize(job, 3, BOTH[1])
    assert recorded.wait_for_kind(job, Resized, 2).devices == BOTH[1:]
    recorded.resize(job, 4, BOTH[0])
    assert recorded.wait_for_kind(job, Resized, 3).generation == 4
    assert recorded.wait_for_end(job, Finished).step == 40
    assert not recorded.of(job, Faulted)
    assert recorded.of(job, Progressed)[-1].step == 40
    assert recorded.hash_weights(job) == recorded.undisturbed("--steps", "40")
    assert "the end" in recorded.read_log(job)
    with (recorded.folder / job / "logs" / "metrics.jsonl").open("rb") as lines:
        assert [entry["step"] for entry in pick_entries(lines, 0, 0).entries] == list(range(1, 41))


def test_logical_workers_change_processes_and_no_process_ends(recorded: RecordedAgent) -> None:
    spec = recorded.spec(recorded.new_job(), "tiny.py", "--steps", "40", logical_workers=4)
    job = recorded.start(spec, BOTH, workers=(3, 1))
    recorded.wait_for_kind(job, ScriptInfo)
    first = recorded.pids(job)
    for generation, workers in ((2, (2, 2)), (3, (1, 3))):
        recorded.apply(Resize(job=job, generation=generation, key=f"map-{generation}", devices=BOTH, workers=workers))
        assert recorded.wait_for_kind(job, Resized, generation - 1).pause_s > 0
        assert recorded.pids(job) == first
    recorded.wait_for_end(job, Finished)
    assert not recorded.of(job, Faulted)
    assert recorded.hash_weights(job) == recorded.undisturbed("--steps", "40")


def test_a_stopped_job_goes_on_from_its_last_step(recorded: RecordedAgent) -> None:
    job = recorded.tiny("--steps", "40", devices=BOTH)
    recorded.wait_for_step(job, 5)
    recorded.apply(Stop(job=job, generation=2, key="stop"))
    stopped = recorded.wait_for_end(job, Stopped)
    assert stopped.clean and not stopped.cancelled and stopped.step >= 5
    assert recorded.find(job) is None
    spec = recorded.spec(job, "tiny.py", "--steps", "40")
    recorded.apply(Start(job=job, generation=3, key="again", spec=spec, devices=BOTH[1:]))
    assert recorded.wait_for_kind(job, Started, 2).step == stopped.step
    recorded.wait_for_end(job, Finished)
    assert recorded.hash_weights(job) == recorded.undisturbed("--steps", "40")


def test_repeated_and_old_instructions_do_nothing(recorded: RecordedAgent) -> None:
    job = recorded.tiny("--steps", "10")
    spec = recorded.spec(job, "tiny.py", "--steps", "10")
    start = Start(job=job, generation=1, key=f"{job}-1", spec=spec, devices=BOTH[:1])
    recorded.apply(start, start)
    recorded.apply(Resize(job=job, generation=0, key="old", devices=BOTH))
    recorded.wait_for_end(job, Finished)
    recorded.apply(start)
    assert [event.seen for event in recorded.of(job, Ignored)] == [1]
    assert len(recorded.of(job, Started)) == 1
    assert recorded.find(job) is None


def test_a_shipped_example_runs_with_the_workers_of_its_script(recorded: RecordedAgent) -> None:
    job = recorded.new_job()
    spec = recorded.spec(job, "train.py", folder=EXAMPLES / "cnn", steps=4)
    recorded.start(spec, BOTH)
    assert recorded.wait_for_kind(job, ScriptInfo).logical_workers == 4
    assert recorded.wait_for_end(job, Finished).step == 4


def test_the_words_with_which_a_script_leaves_are_its_reason(recorded: RecordedAgent) -> None:
    job = recorded.start(recorded.spec(recorded.new_job(), "leaving.py", elastic=False, retries=0))
    failed = recorded.wait_for_end(job, Failed)
    assert failed.reason == "rank 0 ended with code 1: no data in /nowhere"
    assert "no data in /nowhere" in recorded.read_log(job)


def test_cancelling_ends_a_job_for_good(recorded: RecordedAgent) -> None:
    job = recorded.tiny("--steps", "500", devices=BOTH)
    recorded.wait_for_step(job, 2)
    pids = recorded.pids(job)
    recorded.apply(Cancel(job=job, generation=2, key="cancel"))
    assert recorded.wait_for_end(job, Stopped).cancelled
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert list((recorded.folder / job / "checkpoints").glob("step-*"))


def test_an_early_stop_is_a_success_and_an_early_exit_a_failure(recorded: RecordedAgent) -> None:
    stops, exits = recorded.tiny("--stop-at", "3"), recorded.tiny("--exit-at", "3", devices=BOTH[1:])
    finished = recorded.wait_for_end(stops, Finished)
    assert (finished.step, finished.reason) == (4, "converged")
    failed = recorded.wait_for_end(exits, Failed)
    assert (failed.code, failed.exit_code, failed.user_fault) == ("early_exit", 0, True)
    assert "run.stop" in failed.reason


def test_a_crashing_script_is_retried_then_fails_with_its_own_words(recorded: RecordedAgent) -> None:
    job = recorded.tiny("--crash-at", "3", retries=1, devices=BOTH)
    failed = recorded.wait_for_end(job, Failed)
    assert [event.cause for event in recorded.of(job, Faulted)] == ["crashed"]
    assert (failed.code, failed.exit_code, failed.user_fault) == ("crashed", 1, True)
    assert "told to crash at step 3" in failed.reason


def test_a_silent_end_is_not_explained_by_the_attempt_before(recorded: RecordedAgent, tmp_path: Path) -> None:
    script = """
        import pathlib, sys
        if (seen := pathlib.Path("seen")).exists():
            sys.exit(3)
        seen.touch()
        raise ValueError("first attempt")
    """
    (tmp_path / "twice.py").write_text(dedent(script))
    spec = recorded.spec(recorded.new_job(), "twice.py", folder=tmp_path, elastic=False, retries=1)
    failed = recorded.wait_for_end(job := recorded.start(spec), Failed)
    assert "ValueError: first attempt" in recorded.of(job, Faulted)[0].reason
    assert (failed.exit_code, failed.reason) == (3, "rank 0 ended with code 3: it said nothing")


def test_input_that_cannot_work_is_not_tried_twice(recorded: RecordedAgent) -> None:
    disagrees = recorded.tiny(logical_workers=3)
    missing = recorded.start(recorded.spec(recorded.new_job(), "missing.py"), BOTH[1:])
    failed = recorded.wait_for_end(disagrees, Failed)
    assert not recorded.of(disagrees, Faulted)
    assert "logical_workers: 3" in failed.reason and "logical_workers=4" in failed.reason
    assert "missing.py" in recorded.wait_for_end(missing, Failed).reason


def test_a_script_without_init_is_told_the_lines_to_add(recorded: RecordedAgent) -> None:
    failed = recorded.wait_for_end(recorded.start(recorded.spec(recorded.new_job(), "mute.py", "0")), Failed)
    assert failed.code == "no_init"
    assert "run = springtide.init(" in failed.reason and "elastic: false" in failed.reason


def test_a_gang_has_torchruns_variables_and_needs_no_init(recorded: RecordedAgent) -> None:
    job = recorded.start(recorded.spec(recorded.new_job(), "gang.py", elastic=False), BOTH)
    recorded.wait_for_end(job, Finished)
    sums = [(recorded.folder / job / "output" / f"sum-{rank}").read_text() for rank in (0, 1)]
    assert sums == ["3 of 2", "3 of 2"]


def test_a_gang_has_notice_before_it_must_leave(recorded: RecordedAgent) -> None:
    job = recorded.start(recorded.spec(recorded.new_job(), "noticed.py", elastic=False), BOTH[:1])
    output = recorded.folder / job / "output"
    recorded.wait_for((output / "ready").exists, "its first line")
    recorded.apply(Stop(job=job, generation=2, key="stop"))
    recorded.wait_for_end(job, Stopped)
    assert (output / "saved").read_text() == "SIGTERM"


def test_a_command_that_is_no_script_runs_too(recorded: RecordedAgent) -> None:
    spec = recorded.spec(recorded.new_job(), "-m", "json.tool", "tiny.json", elastic=False)
    failed = recorded.wait_for_end(recorded.start(spec, BOTH[:1]), Failed)
    assert failed.exit_code != 0 and "tiny.json" in failed.reason


def test_workers_see_only_what_they_may(recorded: RecordedAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = recorded.folder / "secrets.json"
    secrets.write_text(json.dumps({"WANDB_API_KEY": "hush"}))
    given = {"COLOUR": "blue", "SPRINGTIDE_ROSTER": "mine"}
    job = recorded.tiny("--steps", "2", env=given, secrets_file=str(secrets))
    recorded.wait_for_end(job, Finished)
    seen = json.loads((recorded.folder / job / "output" / "environment.json").read_text())
    assert (seen["COLOUR"], seen["WANDB_API_KEY"], seen["CUDA_VISIBLE_DEVICES"]) == ("blue", "hush", "")
    ours = {name for name in seen if name.startswith(("SPRINGTIDE_", "OMP_", "MKL_", "PYTHON", "TORCHINDUCTOR_"))}
    # LC_CTYPE is the interpreter's own doing (PEP 538).
    assert seen.pop("WORLD_SIZE") == "4", "set by springtide.init, and by nobody else"
    assert set(seen) - ours <= {"PATH", "HOME", "LANG", "LC_CTYPE", "CUDA_VISIBLE_DEVICES", "COLOUR", "WANDB_API_KEY"}
    assert "mine" not in seen["SPRINGTIDE_ROSTER"] if "SPRINGTIDE_ROSTER" in seen else True


@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="only Linux shows names of threads there")
def test_ps_shows_what_each_process_is(recorded: RecordedAgent) -> None:
    job = recorded.tiny("--steps", "500", devices=BOTH, logical_workers=4)
    recorded.wait_for_step(job, 2)
    names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in recorded.pids(job)}
    assert names == {f"p0 {job}"[:15], f"p1 {job}"[:15]}
    recorded.apply(Cancel(job=job, generation=2, key="cancel"))
    recorded.wait_for_end(job, Stopped)


def test_a_job_that_is_known_uses_all_its_devices_from_the_start(recorded: RecordedAgent) -> None:
    job = recorded.tiny("--steps", "5", devices=BOTH, expected_workers=4)
    recorded.wait_for_end(job, Finished)
    assert recorded.of(job, Started)[0].devices == BOTH
    assert not recorded.of(job, Resized)


def test_a_job_with_other_workers_than_expected_starts_again_and_is_not_to_blame(recorded: RecordedAgent) -> None:
    job = recorded.tiny("--steps", "5", devices=BOTH, expected_workers=3, retries=0)
    recorded.wait_for_end(job, Finished)
    (fault,) = recorded.of(job, Faulted)
    assert (fault.cause, fault.user_fault) == ("unexpected", False)
    assert recorded.of(job, ScriptInfo)[0].logical_workers == 4


@pytest.mark.parametrize(("max_steps", "max_s"), [(16, 60.0), (1000, 4.0)])
def test_a_probe_measures_both_shares_and_writes_nothing_to_keep(
    recorded: RecordedAgent, max_steps: int, max_s: float
) -> None:
    job = recorded.new_job()
    spec = recorded.spec(job, "tiny.py", "--steps", "1000", "--sleep", "0.01")
    recorded.apply(Probe(job=job, generation=1, key="probe", spec=spec, devices=BOTH, max_steps=max_steps, max_s=max_s))
    probed = recorded.wait_for_end(job, Probed)
    assert [point.share for point in probed.points] == [1, 2]
    assert all(point.steps_per_s > 0 for point in probed.points)
    assert probed.pause_s is not None and probed.startup_s > 0
    assert recorded.of(job, ScriptInfo)[0].total_steps == 1000


def test_a_job_waits_until_another_has_left_its_device(recorded: RecordedAgent) -> None:
    old = recorded.tiny("--steps", "40", devices=BOTH, logical_workers=4)
    recorded.wait_for_step(old, 3)
    new, spec = recorded.new_job(), recorded.spec("next", "tiny.py", "--steps", "3")
    recorded.apply(
        Start(job=new, generation=1, key="new", spec=spec, devices=BOTH[1:]),
        Resize(job=old, generation=2, key="shrink", devices=BOTH[:1]),
    )
    recorded.wait_for_end(new, Finished)
    recorded.wait_for_end(old, Finished)
    assert recorded.of(old, Resized)[0].seq < recorded.of(new, Started)[0].seq


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("""echo '{"springtide": "0.0.1", "torch": "2.0"}'""", "has springtide 0.0.1"),
        ("echo ModuleNotFoundError: springtide; exit 1", "ModuleNotFoundError: springtide"),
        (None, "cannot be run"),
    ],
)
def test_another_interpreter_is_checked_first(
    recorded: RecordedAgent, tmp_path: Path, answer: str | None, words: str
) -> None:
    python = tmp_path / "python"
    if answer is not None:
        python.write_text(f"#!/bin/sh\n{answer}\n")
        python.chmod(0o755)
    failed = recorded.wait_for_end(recorded.tiny(python=str(python)), Failed)
    assert (failed.code, failed.user_fault) == ("wrong_version", True)
    assert words in failed.reason and str(python) in failed.reason


def test_devices_that_are_not_there_are_refused(recorded: RecordedAgent) -> None:
    job = recorded.tiny(devices=("gpu:7",))
    failed = recorded.wait_for_end(job, Failed)
    assert failed.code == "bad_devices" and "gpu:7" in failed.reason and "cpu:0, cpu:1" in failed.reason


def test_what_is_no_request_is_answered_with_the_reason(recorded: RecordedAgent) -> None:
    with pytest.raises(ExecutorError, match="unknown"):
        recorded.executor.ask({"do": "dance"})
    with pytest.raises(ExecutorError, match="'explode' is unknown; there are 'start'"):
        recorded.executor.ask({"do": "apply", "instructions": [{"kind": "explode"}]})
    assert oct((recorded.executor.state_dir / "agent.sock").stat().st_mode)[-3:] == "600"


def test_lines_that_a_dying_agent_breaks_are_tried_again(tmp_path: Path) -> None:
    listener = listen(tmp_path / "agent.sock")
    listener.setblocking(True)

    def answer_the_third() -> None:
        for _ in range(2):
            listener.accept()[0].close()
        line, _ = listener.accept()
        line.recv(1 << 12)
        line.sendall(b'{"pid": 7}\n')
        line.close()

    agent = threading.Thread(target=answer_the_third)
    agent.start()
    executor = LocalExecutor(tmp_path)
    assert executor.hello() == {"pid": 7}
    executor.close()
    agent.join()
    listener.close()


def test_shutting_down_leaves_no_process_and_keeps_the_events(recorded: RecordedAgent) -> None:
    job = recorded.tiny("--steps", "1000", devices=BOTH, logical_workers=4)
    recorded.wait_for_step(job, 3)
    agent = psutil.Process(recorded.executor.hello()["pid"])
    pids = recorded.pids(job)
    recorded.executor.shutdown()
    assert not agent.is_running()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert recorded.marked() == []
    assert not recorded.executor.is_up
    stopped = recorded.wait_for_end(job, Stopped)
    assert (stopped.reason, stopped.clean) == ("shutdown", True)
