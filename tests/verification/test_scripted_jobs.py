"""A job's processes from outside: signals, damage, failures, and torchrun."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.training.equality import SCRIPTS, WORKLOAD, EqualityRuns

from springtide.errors import InputError, TrainingError
from springtide.executors.protocol import Stop
from springtide.training.settings import Settings
from springtide.training.state.checkpoints import MANIFEST, REST
from springtide.verification.digest_compare import find_difference, read_records
from springtide.verification.scripted_jobs import UNHURRIED, ScriptedJob, ScriptedRun, follow, list_saved

ASKED = {"model": "cnn"}
EPOCHS = SCRIPTS / "epochs.py"


@pytest.mark.parametrize("rank", [0, 1])
def test_sigterm_saves_and_ends_and_the_next_run_goes_on(equality: EqualityRuns, rank: int) -> None:
    folder = equality.new_folder()
    options = {"trace_dir": folder / "trace", "checkpoint_dir": folder / "saved", "max_steps": 10}
    job = equality.job(ASKED, hold_at="3,5", **options)
    with ScriptedRun(job, equality.host, (2, 2), replace(UNHURRIED, settle_s=60.0)) as run:
        run.wait_for_hold()
        run.kill(rank, signal.SIGTERM)
        run.go()
        run.wait_for(lambda: run.held is not None or len(run.codes) == 2)
        if run.held is not None:
            run.go()
        run.wait_for(lambda: len(run.codes) == 2)
        assert set(run.codes) == {143}
        stopped = run.progress.step
    with ScriptedRun(equality.job(ASKED, **options), equality.host, (3, 1)) as run:
        run.wait()
        assert [event["step"] for event in run.events if event["event"] == "resumed"] == [stopped]
    assert find_difference(equality.reference(ASKED), read_records(folder / "trace")) is None


def test_a_stop_that_only_a_leaving_process_heard_is_said_again_to_its_successor(equality: EqualityRuns) -> None:
    folder = equality.new_folder()
    job = equality.job(ASKED, checkpoint_dir=folder, hold_at="3,5")
    with ScriptedRun(job, equality.host, (4,)) as run:
        run.wait_for_hold()
        run.resize((4,), devices=("slot:1",))
        run.go()  # it reads no further command before the change, with which it ends
        run.assigned = replace(run.assigned, ending=Stop(job=run.job, generation=3, key="", grace_s=600.0))
        if run.wait_for_hold() is not None:
            run.go()
        run.wait()
        assert run.progress.terminated and run.progress.step <= 5
        assert list_saved(folder) == [run.progress.step]


def test_a_damaged_checkpoint_costs_steps_but_no_bits(equality: EqualityRuns) -> None:
    folder = equality.new_folder()
    options: dict[str, Any] = {"checkpoint_dir": folder / "saved", "checkpoint_every_steps": 2, "checkpoint_keep": 3}
    equality.run(ASKED, [(0, "1")], steps=6, **options)
    newest = max((folder / "saved").glob("step-*"))
    (newest / REST).write_bytes((newest / REST).read_bytes()[:-1])
    records, run = equality.run(ASKED, [(0, "2")], steps=10, **options)
    resumed = next(event for event in run.events if event["event"] == "resumed")
    assert resumed["step"] < 6
    assert newest.name in resumed["passed_over"][0]
    reference = equality.reference(ASKED)
    assert find_difference({step: reference[step] for step in range(resumed["step"] + 1, 11)}, records) is None


def test_a_checkpoint_is_told_of_when_it_is_on_disk(equality: EqualityRuns) -> None:
    folder = equality.new_folder()
    _, run = equality.run(
        ASKED, [(0, "2"), (5, "4")], steps=8, checkpoint_dir=folder, checkpoint_every_steps=3, checkpoint_keep=9
    )
    told = [event["step"] for event in run.events if event["event"] == "checkpointed"]
    assert told == [int(path.name.removeprefix("step-")) for path in sorted(folder.iterdir())]
    assert told[-1] == 8


@pytest.mark.parametrize(("where", "steps"), [("save_in_turn", [4, 6]), ("save_in_step", [5, 6])])
def test_a_script_can_ask_for_a_checkpoint(equality: EqualityRuns, where: str, steps: list[int]) -> None:
    """Within a step's turns for that step; after them rank 0 has said what happens at its end, so for the next one."""
    folder = equality.new_folder()
    asked = ASKED | {where: 3}
    _, run = equality.run(asked, [(0, "2")], steps=6, checkpoint_dir=folder, checkpoint_keep=9)
    assert [event["step"] for event in run.events if event["event"] == "checkpointed"] == steps


def test_checkpoints_of_another_run_are_refused(equality: EqualityRuns) -> None:
    folder = equality.new_folder()
    equality.run(ASKED, [(0, "1")], steps=2, checkpoint_dir=folder)
    with pytest.raises(TrainingError, match="logical_workers 4, this run has 3"):
        equality.run(ASKED | {"workers": 3}, [(0, "2")], steps=4, checkpoint_dir=folder)


def test_checkpoints_of_other_code_are_refused_unless_that_is_allowed(equality: EqualityRuns) -> None:
    folder = equality.new_folder()
    script = folder / "train.py"
    script.write_text(WORKLOAD.read_text())
    job = ScriptedJob(script, settings=Settings(checkpoint_dir=folder / "saved", max_steps=2))
    follow(job, [(0, (4,))], host=equality.host)
    script.write_text(WORKLOAD.read_text() + "# changed\n")
    job = replace(job, settings=replace(job.settings, max_steps=4))
    with pytest.raises(TrainingError, match=r"written by other code \([0-9a-f]{12}\) .* --allow-code-change"):
        follow(job, [(0, (4,))], host=equality.host)
    job = replace(job, settings=replace(job.settings, allow_code_change=True))
    run = follow(job, [(0, (4,))], host=equality.host)
    assert [event["step"] for event in run.events if event["event"] == "resumed"] == [2]
    build = "    optimizer = build_optimizer("
    script.write_text(WORKLOAD.read_text().replace(build, f"    model[0].bias.requires_grad_(False)\n{build}"))
    with pytest.raises(TrainingError, match="this run has 7 trained parameters, the saved one 8"):
        follow(job, [(0, (4,))], host=equality.host)


def test_a_checkpoint_of_another_torch_is_taken_with_a_warning(equality: EqualityRuns) -> None:
    folder = equality.new_folder()
    equality.run(ASKED, [(0, "1")], steps=2, checkpoint_dir=folder)
    manifest = folder / "step-000000002" / MANIFEST
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"torch": "2.12.0"}))
    _, run = equality.run(ASKED, [(0, "2")], steps=4, checkpoint_dir=folder)
    (warned,) = [event["text"] for event in run.events if event["event"] == "warned"]
    assert "that torch 2.12.0 wrote" in warned


@pytest.mark.parametrize(
    ("asked", "settings", "reason"),
    [
        ({"model": "changing"}, {}, "forward differs between logical workers"),
        ({"model": "forking"}, {}, "parameters without a gradient in logical worker 0: .*find_unused_parameters"),
        ({"samples": 10}, {}, "one global batch needs 16"),
        ({"model": "exotic"}, {"level": "D2"}, "level D2 was not tested with"),
        ({}, {"logical_workers": 8}, "the job file says logical_workers: 8, the script says"),
        ({"workers": 0}, {}, "logical_workers is 0"),
    ],
)
def test_what_cannot_work_ends_with_a_sentence(
    equality: EqualityRuns, asked: dict[str, object], settings: dict[str, object], reason: str
) -> None:
    with (
        ScriptedRun(equality.job(asked, **settings), equality.host, (4,)) as run,
        pytest.raises(TrainingError, match=reason),
    ):
        run.wait()
    assert run.codes == [InputError.exit_code], "starting again could not help"


def test_torchrun_shares_the_logical_workers(equality: EqualityRuns) -> None:
    trace = equality.new_folder()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    settings = {"SPRINGTIDE_TRACE_DIR": str(trace), "SPRINGTIDE_MAX_STEPS": "10", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **settings}
    done = subprocess.run([*command, str(WORKLOAD), json.dumps(ASKED)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert find_difference(equality.reference(ASKED), read_records(trace)) is None


def test_alone_the_script_is_a_plain_script(equality: EqualityRuns) -> None:
    trace = equality.new_folder()
    settings = {"SPRINGTIDE_TRACE_DIR": str(trace), "SPRINGTIDE_MAX_STEPS": "10"}
    command = [sys.executable, str(WORKLOAD), json.dumps(ASKED | {"done": "trained"})]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "trained"
    assert done.stdout.startswith("step 1  loss ")
    assert find_difference(equality.reference(ASKED), read_records(trace)) is None


def test_a_forked_script_ends_as_one_by_hand_does(equality: EqualityRuns) -> None:
    folder = equality.new_folder()
    script = folder / "train.py"
    late = "threading.Thread(target=lambda: (time.sleep(0.5), open('thread', 'w').close())).start()"
    end = "atexit.register(lambda: open('end', 'w').close())"
    script.write_text(f"import atexit, threading, time\n{end}\n{EPOCHS.read_text()}\n{late}\n")
    follow(ScriptedJob(script, (), folder), [(0, (3, 1))], host=equality.host)
    assert {"thread", "end"} <= {path.name for path in folder.iterdir()}


def test_the_fork_server_does_not_wake_cuda(equality: EqualityRuns, tmp_path: Path) -> None:
    script = tmp_path / "awake.py"
    script.write_text(
        "import springtide.training.determinism.cuda as d, threading\nprint(d.is_awake(), threading.active_count())"
    )
    with ScriptedRun(ScriptedJob(script, (), tmp_path), equality.host, (1,)) as run:
        with pytest.raises(TrainingError, match=r"did not call springtide\.init before it ended"):
            run.wait()
        assert run.logs.path_of(0).read_text() == "False 1\n"


def test_ending_early_without_saying_so_is_a_failure(equality: EqualityRuns, tmp_path: Path) -> None:
    script = tmp_path / "quitter.py"
    script.write_text("import springtide, sys\nspringtide.init(logical_workers=2)\nsys.exit(0)\n")
    with (
        ScriptedRun(ScriptedJob(script, (), tmp_path), equality.host, (2,)) as run,
        pytest.raises(TrainingError, match=r"ended with code 0 after step 0.*run\.stop"),
    ):
        run.wait()
