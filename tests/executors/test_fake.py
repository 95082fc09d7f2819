"""The fake executor keeps the contract on its own clock."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.executors.fake import FakeExecutor, FakeJob
from springtide.executors.protocol import (
    Cancel,
    CheckpointPolicy,
    Executor,
    Failed,
    Faulted,
    Finished,
    Ignored,
    Instruction,
    JobSpec,
    Probe,
    Probed,
    Resize,
    Resized,
    SpeedPoint,
    Start,
    Started,
    Stop,
    Stopped,
)

SPEC = JobSpec(("python", "train.py"), "/code", CheckpointPolicy("/checkpoints"), "/output", "/logs")


def start(generation: int = 1, devices: tuple[str, ...] = ("cpu:0",), job: str = "a") -> Start:
    return Start(job=job, generation=generation, key=f"{job}-{generation}", spec=SPEC, devices=devices)


def kinds(executor: FakeExecutor) -> list[str]:
    return [event.kind for event in executor.events(0)]


def only(executor: FakeExecutor, kind: type[Any]) -> Any:
    (found,) = [event for event in executor.events(0) if isinstance(event, kind)]
    return found


def test_a_job_runs_to_its_end() -> None:
    executor: Executor = FakeExecutor({"a": FakeJob(total_steps=20, speeds={1: 10.0}, startup_s=1.0)})
    executor.apply([start()])
    assert isinstance(executor, FakeExecutor)
    executor.advance(5)
    assert kinds(executor) == ["started", "script_info", "checkpointed", "progressed", "finished"]
    assert only(executor, Finished).at_s == 3.0
    assert executor.running() == ()


def test_an_instruction_acts_once() -> None:
    executor = FakeExecutor()
    executor.apply([start(), start(), start(1)])
    executor.apply([start(1)])
    assert len(executor.running()) == 1
    assert kinds(executor) == []


def test_an_old_generation_is_ignored_and_said_so() -> None:
    executor = FakeExecutor()
    executor.apply([start(5), Resize(job="a", generation=4, key="late", devices=("cpu:1",))])
    assert only(executor, Ignored).seen == 5
    assert executor.running()[0].devices == ("cpu:0",)


def test_growing_pauses_then_speeds_up() -> None:
    executor = FakeExecutor({"a": FakeJob(total_steps=100, speeds={1: 10.0, 2: 20.0}, startup_s=1.0, pause_s=0.5)})
    executor.apply([start()])
    executor.advance(2)
    executor.apply([Resize(job="a", generation=2, key="grow", devices=("cpu:0", "cpu:1"))])
    assert executor.running()[0].state == "resizing"
    executor.advance(10)
    resized = only(executor, Resized)
    assert (resized.at_s, resized.step, resized.generation) == (2.5, 10, 2)
    assert only(executor, Finished).at_s == 2.5 + 90 / 20


def test_a_stopped_job_goes_on_where_it_was() -> None:
    executor = FakeExecutor({"a": FakeJob(total_steps=30, startup_s=1.0)})
    executor.apply([start()])
    executor.advance(2.5)
    executor.apply([Stop(job="a", generation=2, key="stop")])
    assert only(executor, Stopped).step == 15
    executor.acknowledge(executor.outbox.last)
    executor.apply([start(3)])
    executor.advance(1)
    assert only(executor, Started).step == 15


def test_a_killed_job_goes_back_to_its_checkpoint() -> None:
    executor = FakeExecutor({"a": FakeJob(total_steps=30, startup_s=1.0, checkpoint_every=10)})
    executor.apply([start()])
    executor.advance(2.5)
    executor.kill("a")
    executor.advance(1)
    assert only(executor, Faulted).step == 15
    assert [event.step for event in executor.events(0) if isinstance(event, Started)] == [0, 10]


def test_a_crashing_job_fails_after_its_retries() -> None:
    executor = FakeExecutor({"a": FakeJob(crashes_at=5)})
    executor.apply([start()])
    executor.advance(60)
    assert sum(isinstance(event, Faulted) for event in executor.events(0)) == SPEC.retries
    assert only(executor, Failed).user_fault


def test_a_probe_measures_each_share_and_ends() -> None:
    executor = FakeExecutor({"a": FakeJob(speeds={1: 10.0, 2: 18.0})})
    executor.apply([Probe(job="a", generation=1, key="p", spec=SPEC, devices=("cpu:0", "cpu:1"))])
    executor.advance(60)
    assert only(executor, Probed).points == (SpeedPoint(1, 15, 10.0), SpeedPoint(2, 15, 18.0))
    assert executor.running() == ()


def test_cancelling_a_job_that_is_not_there_says_stopped() -> None:
    executor = FakeExecutor()
    executor.apply([Cancel(job="a", generation=1, key="c")])
    assert only(executor, Stopped).cancelled


orders = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.sampled_from(["start", "resize", "stop"])), max_size=12
)


def make(job: str, generation: int, kind: str) -> Instruction:
    if kind == "start":
        return start(generation, job=job)
    if kind == "resize":
        return Resize(job=job, generation=generation, key=f"{job}-{generation}-r", devices=("cpu:0", "cpu:1"))
    return Stop(job=job, generation=generation, key=f"{job}-{generation}-s")


@settings(deadline=None)
@given(orders, st.floats(0.1, 5.0))
def test_numbers_ascend_and_repeating_everything_changes_nothing(asked: list[Any], step_s: float) -> None:
    once, twice = FakeExecutor(), FakeExecutor()
    for job, generation, kind in asked:
        instruction = make(job, generation, kind)
        once.apply([instruction])
        twice.apply([instruction, instruction])
        once.advance(step_s)
        twice.advance(step_s)
    assert once.running() == twice.running()
    numbers = [event.seq for event in twice.events(0)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert happenings(once) == happenings(twice)


def happenings(executor: FakeExecutor) -> list[tuple[str, str, int, float]]:
    """What was told and when, but for what was ignored."""
    told = [event for event in executor.events(0) if not isinstance(event, Ignored)]
    return [(event.kind, event.job, event.generation, event.at_s) for event in told]
