"""Real processes, real gloo: jobs start, grow, shrink, stop, fail, and leave nothing behind."""

import json
import os
import threading
from pathlib import Path

import psutil
import pytest
from tests.executors.local.agents import BOTH, RecordedAgent

import springtide.examples
from springtide.errors import ExecutorError
from springtide.executors.local.executor import LocalExecutor
from springtide.executors.local.json_lines import listen
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


def test_a_job_grows_moves_and_shrinks_in_place_to_the_same_bits(stage: RecordedAgent) -> None:
    job = stage.tiny("--steps", "40")
    info = stage.wait_for_kind(job, ScriptInfo)
    assert (info.logical_workers, info.total_steps, info.steps_per_epoch, info.device_type) == (4, 40, 10, "cpu")
    first = stage.pids(job)
    stage.resize(job, 2, *BOTH)
    assert stage.wait_for_kind(job, Resized).devices == BOTH
    assert set(first) < set(stage.pids(job))
    stage.resize(job, 3, BOTH[1])
    assert stage.wait_for_kind(job, Resized, 2).devices == BOTH[1:]
    stage.resize(job, 4, BOTH[0])
    assert stage.wait_for_kind(job, Resized, 3).generation == 4
    assert stage.wait_for_end(job, Finished).step == 40
    assert not stage.of(job, Faulted)
    assert stage.of(job, Progressed)[-1].step == 40
    assert stage.hash_weights(job) == stage.undisturbed("--steps", "40")
    assert "the end" in stage.read_log(job)
    metrics = (stage.folder / job / "logs" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in metrics] == list(range(1, 41))


def test_logical_workers_change_processes_and_no_process_ends(stage: RecordedAgent) -> None:
    spec = stage.spec(stage.new_job(), "tiny.py", "--steps", "40", logical_workers=4)
    job = stage.start(spec, BOTH, workers=(3, 1))
    stage.wait_for_kind(job, ScriptInfo)
    first = stage.pids(job)
    for generation, workers in ((2, (2, 2)), (3, (1, 3))):
        stage.apply(Resize(job=job, generation=generation, key=f"map-{generation}", devices=BOTH, workers=workers))
        assert stage.wait_for_kind(job, Resized, generation - 1).pause_s > 0
        assert stage.pids(job) == first
    stage.wait_for_end(job, Finished)
    assert not stage.of(job, Faulted)
    assert stage.hash_weights(job) == stage.undisturbed("--steps", "40")


def test_a_stopped_job_goes_on_from_its_last_step(stage: RecordedAgent) -> None:
    job = stage.tiny("--steps", "40", devices=BOTH)
    stage.wait_for_step(job, 5)
    stage.apply(Stop(job=job, generation=2, key="stop"))
    stopped = stage.wait_for_end(job, Stopped)
    assert stopped.clean and not stopped.cancelled and stopped.step >= 5
    assert stage.find(job) is None
    spec = stage.spec(job, "tiny.py", "--steps", "40")
    stage.apply(Start(job=job, generation=3, key="again", spec=spec, devices=BOTH[1:]))
    assert stage.wait_for_kind(job, Started, 2).step == stopped.step
    stage.wait_for_end(job, Finished)
    assert stage.hash_weights(job) == stage.undisturbed("--steps", "40")


def test_repeated_and_old_instructions_do_nothing(stage: RecordedAgent) -> None:
    job = stage.tiny("--steps", "10")
    spec = stage.spec(job, "tiny.py", "--steps", "10")
    start = Start(job=job, generation=1, key=f"{job}-1", spec=spec, devices=BOTH[:1])
    stage.apply(start, start)
    stage.apply(Resize(job=job, generation=0, key="old", devices=BOTH))
    stage.wait_for_end(job, Finished)
    stage.apply(start)
    assert [event.seen for event in stage.of(job, Ignored)] == [1]
    assert len(stage.of(job, Started)) == 1
    assert stage.find(job) is None


def test_a_shipped_example_runs_with_the_workers_of_its_script(stage: RecordedAgent) -> None:
    job = stage.new_job()
    spec = stage.spec(job, "train.py", folder=EXAMPLES / "cnn", steps=4)
    stage.start(spec, BOTH)
    assert stage.wait_for_kind(job, ScriptInfo).logical_workers == 4
    assert stage.wait_for_end(job, Finished).step == 4


def test_cancelling_ends_a_job_for_good(stage: RecordedAgent) -> None:
    job = stage.tiny("--steps", "500", devices=BOTH)
    stage.wait_for_step(job, 2)
    pids = stage.pids(job)
    stage.apply(Cancel(job=job, generation=2, key="cancel"))
    assert stage.wait_for_end(job, Stopped).cancelled
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert list((stage.folder / job / "checkpoints").glob("step-*"))


def test_an_early_stop_is_a_success_and_an_early_exit_a_failure(stage: RecordedAgent) -> None:
    stops, exits = stage.tiny("--stop-at", "3"), stage.tiny("--exit-at", "3", devices=BOTH[1:])
    finished = stage.wait_for_end(stops, Finished)
    assert (finished.step, finished.reason) == (4, "converged")
    failed = stage.wait_for_end(exits, Failed)
    assert (failed.code, failed.exit_code, failed.user_fault) == ("early_exit", 0, True)
    assert "run.stop" in failed.reason


def test_a_crashing_script_is_retried_then_fails_with_its_own_words(stage: RecordedAgent) -> None:
    job = stage.tiny("--crash-at", "3", retries=1, devices=BOTH)
    failed = stage.wait_for_end(job, Failed)
    assert [event.cause for event in stage.of(job, Faulted)] == ["crashed"]
    assert (failed.code, failed.exit_code, failed.user_fault) == ("crashed", 1, True)
    assert "told to crash at step 3" in failed.reason


def test_input_that_cannot_work_is_not_tried_twice(stage: RecordedAgent) -> None:
    disagrees = stage.tiny(logical_workers=3)
    missing = stage.start(stage.spec(stage.new_job(), "missing.py"), BOTH[1:])
    failed = stage.wait_for_end(disagrees, Failed)
    assert not stage.of(disagrees, Faulted)
    assert "logical_workers: 3" in failed.reason and "logical_workers=4" in failed.reason
    assert "missing.py" in stage.wait_for_end(missing, Failed).reason


def test_a_script_without_init_is_told_the_lines_to_add(stage: RecordedAgent) -> None:
    failed = stage.wait_for_end(stage.start(stage.spec(stage.new_job(), "mute.py", "0")), Failed)
    assert failed.code == "no_init"
    assert "run = springtide.init(" in failed.reason and "elastic: false" in failed.reason


def test_a_gang_has_torchruns_variables_and_needs_no_init(stage: RecordedAgent) -> None:
    job = stage.start(stage.spec(stage.new_job(), "gang.py", elastic=False), BOTH)
    stage.wait_for_end(job, Finished)
    sums = [(stage.folder / job / "output" / f"sum-{rank}").read_text() for rank in (0, 1)]
    assert sums == ["3 of 2", "3 of 2"]


def test_a_command_that_is_no_script_runs_too(stage: RecordedAgent) -> None:
    spec = stage.spec(stage.new_job(), "-m", "json.tool", "tiny.json", elastic=False)
    failed = stage.wait_for_end(stage.start(spec, BOTH[:1]), Failed)
    assert failed.exit_code != 0 and "tiny.json" in failed.reason


def test_workers_see_only_what_they_may(stage: RecordedAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = stage.folder / "secrets.json"
    secrets.write_text(json.dumps({"WANDB_API_KEY": "hush"}))
    given = {"COLOUR": "blue", "SPRINGTIDE_ROSTER": "mine"}
    job = stage.tiny("--steps", "2", env=given, secrets_file=str(secrets))
    stage.wait_for_end(job, Finished)
    seen = json.loads((stage.folder / job / "output" / "environment.json").read_text())
    assert (seen["COLOUR"], seen["WANDB_API_KEY"], seen["CUDA_VISIBLE_DEVICES"]) == ("blue", "hush", "")
    ours = {name for name in seen if name.startswith(("SPRINGTIDE_", "OMP_", "MKL_", "PYTHON"))}
    # LC_CTYPE is the interpreter's own doing (PEP 538).
    assert set(seen) - ours <= {"PATH", "HOME", "LANG", "LC_CTYPE", "CUDA_VISIBLE_DEVICES", "COLOUR", "WANDB_API_KEY"}
    assert "mine" not in seen["SPRINGTIDE_ROSTER"] if "SPRINGTIDE_ROSTER" in seen else True


@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="only Linux shows names of threads there")
def test_ps_shows_what_each_process_is(stage: RecordedAgent) -> None:
    job = stage.tiny("--steps", "500", devices=BOTH, logical_workers=4)
    stage.wait_for_step(job, 2)
    names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in stage.pids(job)}
    assert names == {f"p0 {job}"[:15], f"p1 {job}"[:15]}
    stage.apply(Cancel(job=job, generation=2, key="cancel"))
    stage.wait_for_end(job, Stopped)


def test_a_job_that_is_known_uses_all_its_devices_from_the_start(stage: RecordedAgent) -> None:
    job = stage.tiny("--steps", "5", devices=BOTH, expected_workers=4)
    stage.wait_for_end(job, Finished)
    assert stage.of(job, Started)[0].devices == BOTH
    assert not stage.of(job, Resized)


def test_a_job_with_other_workers_than_expected_starts_again_and_is_not_to_blame(stage: RecordedAgent) -> None:
    job = stage.tiny("--steps", "5", devices=BOTH, expected_workers=3, retries=0)
    stage.wait_for_end(job, Finished)
    (fault,) = stage.of(job, Faulted)
    assert (fault.cause, fault.user_fault) == ("unexpected", False)
    assert stage.of(job, ScriptInfo)[0].logical_workers == 4


@pytest.mark.parametrize(("max_steps", "max_s"), [(16, 60.0), (1000, 4.0)])
def test_a_probe_measures_both_shares_and_writes_nothing_to_keep(
    stage: RecordedAgent, max_steps: int, max_s: float
) -> None:
    job = stage.new_job()
    spec = stage.spec(job, "tiny.py", "--steps", "1000", "--sleep", "0.01")
    stage.apply(Probe(job=job, generation=1, key="probe", spec=spec, devices=BOTH, max_steps=max_steps, max_s=max_s))
    probed = stage.wait_for_end(job, Probed)
    assert [point.share for point in probed.points] == [1, 2]
    assert all(point.steps_per_s > 0 for point in probed.points)
    assert probed.pause_s is not None and probed.startup_s > 0
    assert stage.of(job, ScriptInfo)[0].total_steps == 1000


def test_a_job_waits_until_another_has_left_its_device(stage: RecordedAgent) -> None:
    old = stage.tiny("--steps", "40", devices=BOTH, logical_workers=4)
    stage.wait_for_step(old, 3)
    new, spec = stage.new_job(), stage.spec("next", "tiny.py", "--steps", "3")
    stage.apply(
        Start(job=new, generation=1, key="new", spec=spec, devices=BOTH[1:]),
        Resize(job=old, generation=2, key="shrink", devices=BOTH[:1]),
    )
    stage.wait_for_end(new, Finished)
    stage.wait_for_end(old, Finished)
    assert stage.of(old, Resized)[0].seq < stage.of(new, Started)[0].seq


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("""echo '{"springtide": "0.0.1", "torch": "2.0"}'""", "has springtide 0.0.1"),
        ("echo ModuleNotFoundError: springtide; exit 1", "ModuleNotFoundError: springtide"),
        (None, "cannot be run"),
    ],
)
def test_another_interpreter_is_checked_first(
    stage: RecordedAgent, tmp_path: Path, answer: str | None, words: str
) -> None:
    python = tmp_path / "python"
    if answer is not None:
        python.write_text(f"#!/bin/sh\n{answer}\n")
        python.chmod(0o755)
    failed = stage.wait_for_end(stage.tiny(python=str(python)), Failed)
    assert (failed.code, failed.user_fault) == ("wrong_version", True)
    assert words in failed.reason and str(python) in failed.reason


def test_devices_that_are_not_there_are_refused(stage: RecordedAgent) -> None:
    job = stage.tiny(devices=("gpu:7",))
    failed = stage.wait_for_end(job, Failed)
    assert failed.code == "bad_devices" and "gpu:7" in failed.reason and "cpu:0, cpu:1" in failed.reason


def test_what_is_no_request_is_answered_with_the_reason(stage: RecordedAgent) -> None:
    with pytest.raises(ExecutorError, match="unknown"):
        stage.executor.ask({"do": "dance"})
    with pytest.raises(ExecutorError, match="kind"):
        stage.executor.ask({"do": "apply", "instructions": [{"kind": "explode"}]})
    assert oct((stage.executor.state_dir / "agent.sock").stat().st_mode)[-3:] == "600"


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


def test_shutting_down_leaves_no_process_and_keeps_the_events(stage: RecordedAgent) -> None:
    job = stage.tiny("--steps", "1000", devices=BOTH, logical_workers=4)
    stage.wait_for_step(job, 3)
    agent = psutil.Process(stage.executor.hello()["pid"])
    pids = stage.pids(job)
    stage.executor.shutdown()
    assert not agent.is_running()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert stage.marked() == []
    assert not stage.executor.is_up
    stopped = stage.wait_for_end(job, Stopped)
    assert (stopped.reason, stopped.clean) == ("shutdown", True)
