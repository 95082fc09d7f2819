"""What happens when processes, the fork server or the agent are lost: nothing is, nor run twice, and the bits stay."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from benchmarks.arenas import SCRIPT
from tests.executors.local.agents import BOTH, RecordedAgent, start_agent

from springtide.executors.local.daemon import is_alive
from springtide.executors.local.jobs.attempt import AttemptOptions
from springtide.executors.local.jobs.hangs import Patience
from springtide.executors.local.paths import LOCK
from springtide.executors.log_files import FILE_BYTES, FILES
from springtide.executors.protocol import (
    Checkpointed,
    CheckpointFailing,
    CheckpointPolicy,
    Event,
    Failed,
    Faulted,
    Finished,
    Lagging,
    Start,
    Started,
    Stop,
    Stopped,
    Warned,
)

STEPS = ("--steps", "60")
SLOW_STEPS = SCRIPT.parent


def check_bits(recorded: RecordedAgent, job: str) -> None:
    """The job ends, once, with the weights of an undisturbed run."""
    assert recorded.wait_for_end(job, Finished).step == 60
    assert len(recorded.of(job, Finished)) == 1
    assert recorded.hash_weights(job) == recorded.undisturbed(*STEPS)


def test_an_agent_that_finds_another_in_its_place_ends(tmp_path: Path) -> None:
    """Its lock was removed, or storage keeps none: both ran every job, and each replaced the journal of the other."""
    recorded = start_agent(tmp_path, warm=False)
    first = psutil.Process(recorded.executor.hello()["pid"])
    try:
        (recorded.executor.state_dir / LOCK).unlink()
        recorded.executor.close()
        recorded.executor.start()
        recorded.wait_for(lambda: not is_alive(first.pid), "the end of the agent that was replaced")
        assert recorded.executor.hello()["pid"] != first.pid
    finally:
        recorded.executor.shutdown()


def start_pair(recorded: RecordedAgent) -> str:
    """A job on both slots that has taken some steps and has a checkpoint."""
    job = recorded.tiny(*STEPS, devices=BOTH, logical_workers=4)
    recorded.wait_for_step(job, 8)
    return job


def find_fork_servers(recorded: RecordedAgent) -> list[psutil.Process]:
    """The fork servers of the agent."""
    agent = psutil.Process(recorded.executor.hello()["pid"])
    return [
        child
        for child in agent.children()
        if "springtide.executors.local.processes.fork_server_main" in child.cmdline()
    ]


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        pytest.param(signal.SIGKILL, "killed", id="SIGKILL"),
        pytest.param(signal.SIGSTOP, "stopped", id="SIGSTOP"),
        pytest.param(signal.SIGTERM, "killed", id="SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_a_lost_worker_costs_no_bits(recorded: RecordedAgent, number: int, cause: str) -> None:
    job = start_pair(recorded)
    os.kill(recorded.pids(job)[-1], number)
    fault = recorded.wait_for_kind(job, Faulted)
    assert (fault.cause, fault.user_fault) == (cause, False)
    assert recorded.wait_for_kind(job, Started, 2).step > 0
    check_bits(recorded, job)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_fork_server_costs_no_bits(recorded: RecordedAgent, number: int) -> None:
    job = start_pair(recorded)
    before = recorded.pids(job)
    for server in find_fork_servers(recorded):
        server.send_signal(number)
    assert recorded.wait_for_kind(job, Faulted).cause == "fork_server_lost"
    recorded.wait_for_kind(job, Started, 2)
    assert not set(before) & set(recorded.pids(job))
    assert not any(psutil.pid_exists(pid) for pid in before)
    check_bits(recorded, job)


@pytest.mark.parametrize(
    "with_fork_server",
    [pytest.param(False, id="agent", marks=pytest.mark.slow), pytest.param(True, id="agent-and-fork-server")],
)
def test_a_lost_agent_costs_no_bits_and_nothing_runs_twice(recorded: RecordedAgent, with_fork_server: bool) -> None:
    job = start_pair(recorded)
    before = recorded.pids(job)
    agent = psutil.Process(recorded.executor.hello()["pid"])
    victims = [agent, *find_fork_servers(recorded)] if with_fork_server else [agent]
    for victim in victims:
        victim.suspend()
    for victim in victims:
        victim.kill()
    assert recorded.wait_for_kind(job, Faulted).cause == "agent_lost"
    assert recorded.wait_for_kind(job, Started, 2).step > 0
    assert not any(psutil.pid_exists(pid) for pid in before)
    assert len(recorded.pids(job)) == 2
    check_bits(recorded, job)


@pytest.fixture
def own_stage(tmp_path: Path) -> Iterator[RecordedAgent]:
    """An agent of its own, which ends early and gives up soon."""
    made = start_agent(tmp_path, lease_s=3.0, options=AttemptOptions(init_s=5.0, futile=2))
    yield made
    made.executor.shutdown()
    assert made.marked() == []


@pytest.mark.slow
def test_work_stops_after_the_lease_and_goes_on_later(own_stage: RecordedAgent) -> None:
    job = own_stage.tiny("--steps", "1000", devices=BOTH, logical_workers=4)
    own_stage.wait_for_step(job, 3)
    agent = psutil.Process(own_stage.executor.hello()["pid"])
    pids = own_stage.pids(job)
    own_stage.executor.close()
    agent.wait(60)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert own_stage.marked() == []
    stopped = own_stage.wait_for_end(job, Stopped)
    assert (stopped.reason, stopped.clean) == ("lease", True)
    own_stage.executor.lease_s = 600.0


def test_a_device_is_free_again_although_its_process_was_stopped(recorded: RecordedAgent) -> None:
    stuck = recorded.tiny("--steps", "1000", devices=BOTH, logical_workers=4)
    recorded.wait_for_step(stuck, 3)
    pids = recorded.pids(stuck)
    os.kill(pids[-1], signal.SIGSTOP)
    recorded.apply(Stop(job=stuck, generation=2, key="stop", grace_s=600.0))
    job = recorded.tiny("--steps", "3", devices=BOTH[1:])
    assert not recorded.wait_for_end(stuck, Stopped).clean
    recorded.wait_for_end(job, Finished)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_full_disk_stops_no_training_and_fails_no_job(recorded: RecordedAgent, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.touch()
    words = ("train.py", "20", "--sleep", "0.05", "--full-while", str(full))
    job = recorded.start(recorded.spec(recorded.new_job(), *words, folder=SLOW_STEPS, retries=0))
    assert "No space left on device" in recorded.wait_for_kind(job, CheckpointFailing).reason
    recorded.wait_for(lambda: any(one.step == 20 for one in recorded.of(job, CheckpointFailing)), "a result not saved")
    full.unlink()
    assert recorded.wait_for_end(job, Finished).step == 20
    assert recorded.hash_weights(job)
    assert recorded.of(job, Faulted) == []  # what was trained is written again, not trained again


@pytest.mark.parametrize("grace_s", [None, 0.0], ids=["no room for a checkpoint", "no grace for one"])
def test_a_stop_tells_what_is_saved_and_how_many_steps_are_lost(
    recorded: RecordedAgent, tmp_path: Path, grace_s: float | None
) -> None:
    full = tmp_path / "full"
    spec = recorded.spec(
        recorded.new_job(), "train.py", "1000", "--sleep", "0.02", "--full-while", str(full), folder=SLOW_STEPS
    )
    job = recorded.start(spec)
    recorded.wait_for_kind(job, Checkpointed)
    full.touch()
    recorded.wait_for_kind(job, CheckpointFailing)
    recorded.wait_for_step(job, max(one.step for one in recorded.of(job, Checkpointed)) + 20)
    recorded.apply(Stop(job=job, generation=2, key="stop", grace_s=grace_s))
    stopped = recorded.wait_for_end(job, Stopped)
    assert not stopped.clean and stopped.lost > 0, stopped
    assert ("the process ends as it was told" in recorded.read_log(job)) == (grace_s is None)
    full.unlink()
    recorded.apply(Start(job=job, generation=3, key="again", spec=spec, devices=BOTH[:1]))
    assert recorded.wait_for_kind(job, Started, 2).step == stopped.step > 0
    recorded.apply(Stop(job=job, generation=4, key="stop again"))
    last = recorded.wait_for_end(job, Stopped)
    assert (last.clean, last.lost) == (True, 0) and last.step >= stopped.step


@pytest.mark.slow
def test_a_job_that_never_gets_anywhere_is_given_up(own_stage: RecordedAgent) -> None:
    job = own_stage.tiny("--sleep", "100")
    for number in range(3):
        own_stage.wait_for_kind(job, Started, number + 1)
        os.kill(own_stage.pids(job)[0], signal.SIGKILL)
        if number < 2:
            own_stage.wait_for_kind(job, Faulted, number + 1)
    failed = own_stage.wait_for_end(job, Failed)
    assert (failed.code, failed.user_fault) == ("no_progress", False)


@pytest.mark.slow
def test_a_fork_server_lost_while_it_wakes_fails_no_job(own_stage: RecordedAgent) -> None:
    job = own_stage.tiny("--steps", "3")
    own_stage.wait_for(lambda: find_fork_servers(own_stage), "a fork server")
    for server in find_fork_servers(own_stage):
        server.kill()
    own_stage.wait_for_end(job, Finished)
    assert [event.cause for event in own_stage.of(job, Faulted)] == ["fork_server_lost"]


@pytest.mark.slow
def test_a_script_that_waits_without_init_is_told_the_lines_to_add(own_stage: RecordedAgent) -> None:
    job = own_stage.start(own_stage.spec(own_stage.new_job(), "mute.py", "300"))
    failed = own_stage.wait_for_end(job, Failed)
    assert failed.code == "no_init" and "within 5 s" in failed.reason


@pytest.mark.slow
def test_a_blocked_collective_is_ended_and_costs_no_bits(tmp_path: Path) -> None:
    hasty = start_agent(tmp_path, options=AttemptOptions(patience=Patience(idle_s=4.0)))
    try:
        job = hasty.tiny(*STEPS, "--block-at", "20", devices=BOTH, logical_workers=4)
        assert hasty.wait_for_kind(job, Faulted).cause == "hung"
        check_bits(hasty, job)
    finally:
        hasty.executor.shutdown()


@pytest.mark.slow
def test_a_package_that_starts_threads_is_not_imported_ahead(recorded: RecordedAgent, tmp_path: Path) -> None:
    (tmp_path / "restless.py").write_text("import threading\nthreading.Timer(1000, print).start()\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text("import os\nimport restless\nos._exit(7)\n")
    spec = recorded.spec(
        recorded.new_job(), "train.py", folder=tmp_path / "job", env={"PYTHONPATH": str(tmp_path)}, retries=0
    )
    job = recorded.start(spec)
    assert recorded.wait_for_end(job, Failed).exit_code == 7
    assert "import for themselves" in (recorded.folder / job / "logs" / "imports.log").read_text()


@pytest.mark.slow
def test_gigabytes_of_output_do_not_fill_the_disk(recorded: RecordedAgent) -> None:
    job = recorded.start(recorded.spec(recorded.new_job(), "loud.py", "1024", elastic=False))
    recorded.wait_for_end(job, Finished)
    sizes = [file.stat().st_size for file in (recorded.folder / job / "logs").glob("rank-0.log*")]
    assert len(sizes) == FILES and sum(sizes) <= FILES * FILE_BYTES


@pytest.mark.slow
def test_many_faults_in_a_row_lose_nothing(recorded: RecordedAgent) -> None:
    dice = random.Random(4)
    jobs = [recorded.tiny("--steps", "150", devices=BOTH[k : k + 1], logical_workers=4) for k in (0, 1)]
    generations = dict.fromkeys(jobs, 1)
    for _ in range(30):
        time.sleep(dice.uniform(0.1, 1.0))
        recorded.listen()
        job = dice.choice(jobs)
        if recorded.ends(job):
            continue
        shake(recorded, job, dice, generations)
    for job in jobs:
        assert recorded.wait_for_end(job, Finished).step == 150
        ends: list[Event] = list(recorded.of(job, Finished))
        assert len(ends) == 1
        assert recorded.hash_weights(job) == recorded.undisturbed("--steps", "150")


def shake(recorded: RecordedAgent, job: str, dice: random.Random, generations: dict[str, int]) -> None:
    """Do one bad thing, or resize."""
    kind = dice.choice(["kill", "stop", "term", "fork", "agent", "resize", "resize"])
    pids = recorded.pids(job) if recorded.find(job) is not None else ()
    if kind == "resize":
        generations[job] += 1
        recorded.resize(job, generations[job], *dice.sample(BOTH, dice.choice([1, 2])))
    elif kind == "agent":
        psutil.Process(recorded.executor.hello()["pid"]).kill()
    elif kind == "fork":
        for server in find_fork_servers(recorded):
            server.kill()
    elif pids:
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}[kind]
        os.kill(dice.choice(pids), number)


def test_a_damaged_checkpoint_is_passed_over_and_said(recorded: RecordedAgent) -> None:
    job = recorded.new_job()
    spec = recorded.spec(job, "tiny.py", "--steps", "1000")
    recorded.start(spec)
    recorded.wait_for_kind(job, Checkpointed, 3)
    recorded.apply(Stop(job=job, generation=2, key="stop"))
    saved = recorded.wait_for_end(job, Stopped).step
    newest = max(Path(spec.checkpoint.dir).glob("step-*"))
    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    recorded.apply(Start(job=job, generation=3, key="again", spec=spec, devices=BOTH[:1]))
    assert newest.name in recorded.wait_for_kind(job, Warned).reason
    assert recorded.of(job, Started)[-1].step < saved
    recorded.apply(Stop(job=job, generation=4, key="end"))
    recorded.wait_for_end(job, Stopped)


def test_a_checkpoint_folder_that_cannot_be_made_is_the_users_to_change(
    recorded: RecordedAgent, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    job = recorded.tiny("--steps", "3", checkpoint=CheckpointPolicy(str(tmp_path / "file" / "below"), 0.1, 2))
    failed = recorded.wait_for_end(job, Failed)
    assert (failed.code, failed.user_fault) == ("no_folder", True)
    assert "checkpoint.dir" in failed.reason


def test_a_process_that_the_others_wait_for_is_named_by_its_device(recorded: RecordedAgent) -> None:
    job = recorded.tiny("--steps", "200", "--lag", "0.05", devices=BOTH, logical_workers=4)
    slow = recorded.wait_for_kind(job, Lagging)
    assert slow.device == BOTH[1] and slow.factor > 1.5
    over = recorded.wait_for_kind(job, Lagging, 2)
    assert (over.device, over.factor) == ("", 1.0)
    recorded.wait_for_end(job, Finished)
