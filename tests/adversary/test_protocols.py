"""Fuzzers of what workers, hosts and executors say, and processes stopped at seeded moments."""

import base64
import contextlib
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest
from benchmarks.nonsense import spoil, write_line
from tests.adversary.nights import SEED, Record, count, report
from tests.executors.local.agents import BOTH, RecordedAgent, start_agent

from springtide.core.limits import MOST_INTEGER, MOST_STEPS
from springtide.errors import ExecutorError
from springtide.executors import wire
from springtide.executors.hosts.host_messages import read_report
from springtide.executors.local.jobs.worker_messages import read_message
from springtide.executors.local.journal import Journal
from springtide.executors.local.json_connections import connect
from springtide.executors.local.paths import JOURNAL, SOCKET
from springtide.executors.protocol import (
    CheckpointPolicy,
    Event,
    Failed,
    Faulted,
    Finished,
    JobSpec,
    Lagging,
    Probed,
    Progressed,
    ScriptInfo,
    SpeedPoint,
    Start,
    Started,
    Stopped,
)

pytestmark = pytest.mark.adversary
SCRIPTS = Path(__file__).parents[1] / "executors" / "local" / "scripts"
COMMON: dict[str, Any] = {"job": "job", "generation": 1, "seq": 7, "at_s": 1.0}
EVENTS: tuple[Event, ...] = (
    Started(**COMMON, devices=("cpu:0",)),
    ScriptInfo(
        **COMMON,
        logical_workers=2,
        total_steps=9,
        steps_per_epoch=3,
        device_type="cpu",
        torch_version="2",
        startup_s=1.0,
    ),
    Progressed(**COMMON, step=1, total_steps=9, epoch=0, steps_per_s=1.0, outside_s=0.0, share=1),
    Lagging(**COMMON, device="cpu:1", factor=2.0),
    Faulted(**COMMON, cause="killed", reason="because", step=1),
    Stopped(**COMMON, step=1, reason="preempted"),
    Finished(**COMMON, step=9, reason="done", weights="0" * 64),
    Failed(**COMMON, step=1, exit_code=1, reason="so", user_fault=True),
    Probed(**COMMON, points=(SpeedPoint(1, 3, 2.0),), startup_s=1.0),
)
WORDS: tuple[dict[str, Any], ...] = (
    {"event": "planned", "logical_workers": 2, "steps_per_epoch": 3, "step": 0, "total_steps": 9},
    {"event": "progressed", "step": 1, "epoch": 0},
    {"event": "epoch", "epoch": 0, "outside_s": 1.0},
    {"event": "resized", "step": 1, "pause_s": 0.1},
    {"event": "checkpoint_failing", "step": 1, "reason": "full", "is_result": False},
    {"event": "warned", "text": "careful"},
    {"event": "lagging", "laggard": "p1", "factor": 2.0},
    {"event": "resumed", "step": 1, "passed_over": ["one"]},
    {"event": "logged", "step": 1, "metrics": {"loss": 1.0}},
    {"event": "finished", "step": 9, "reason": None},
    {"event": "busy", "doing": "uploading"},
    {"event": "store", "address": "127.0.0.1:4000"},
)


REPORTS: tuple[dict[str, Any], ...] = (
    {"say": "introduction", "host": "h", "nonce": "n", "proof": "p", "version": "1"},
    {"say": "rejection", "reason": "no disk", "again": True},
    {"say": "ready", "address": "10.0.0.2", "devices": [{"name": "cpu:0", "type": "cpu"}]},
    {"say": "leaving", "grace_s": 3.0, "reason": "reboot"},
    {"say": "forked", "start": "s", "process": "p0", "pid": 7},
    {"say": "said", "start": "s", "process": "p0", "message": {"event": "progressed", "step": 1, "epoch": 0}},
    {"say": "nonsense", "start": "s", "process": "p0", "text": "hello"},
    {"say": "exited", "start": "s", "process": "p0", "code": -9},
    {"say": "sampled", "start": "s", "samples": {"p0": [False, 1.0]}},
    {"say": "state", "start": "s", "torch_version": "2", "failure": ""},
    {"say": "saved", "start": "s", "name": "step-9", "manifest": "{}"},
)


def can_be_stored(event: Event) -> bool:
    """Whether a strict database and a strict reader of JSON would take an event."""
    text = json.dumps(wire.dump_event(event), allow_nan=False, ensure_ascii=False).encode()
    return all(abs(number) <= MOST_INTEGER for number in find_numbers(json.loads(text)))


def can_be_written(message: dict[str, Any]) -> bool:
    """Whether what was read is text that can be encoded, and whole numbers that can be kept."""
    text = json.dumps(message, ensure_ascii=False).encode()
    return all(abs(number) <= MOST_INTEGER for number in find_numbers(json.loads(text)))


def find_numbers(data: Any) -> Iterator[int]:
    if isinstance(data, int):
        yield data
    elif isinstance(data, dict | list):
        for one in data.values() if isinstance(data, dict) else data:
            yield from find_numbers(one)


def test_what_workers_say_is_read_or_refused(record_property: Record) -> None:
    dice, seen = random.Random(SEED), Counter[str]()
    for _ in count(20_000):
        try:
            message = read_message(spoil(dice.choice(WORDS), dice))
        except ValueError:
            seen["refused"] += 1
            continue
        assert 0 <= (getattr(message, "step", None) or 0) <= MOST_STEPS
        assert can_be_written(asdict(message))
        seen["read"] += 1
    assert seen["read"] and seen["refused"], "both ways are tried"
    report(record_property, "words of workers", seen)


def test_what_hosts_say_is_read_or_refused(record_property: Record) -> None:
    dice, seen = random.Random(SEED), Counter[str]()
    for _ in count(10_000):
        try:
            message = read_report(spoil(dice.choice(REPORTS), dice))
        except ValueError:
            seen["refused"] += 1
            continue
        told = asdict(message)
        told.pop("message", None)  # what a worker said, which is read as such
        assert can_be_written(told)
        seen["read"] += 1
    assert seen["read"] and seen["refused"], "both ways are tried"
    report(record_property, "words of hosts", seen)


def test_what_executors_say_costs_one_job_at_most_and_can_be_stored(record_property: Record) -> None:
    dice, seen = random.Random(SEED), Counter[str]()
    good = wire.dump_event(EVENTS[0])
    for _ in count(10_000):
        heard = list(wire.load_events([good, spoil(wire.dump_event(dice.choice(EVENTS)), dice), good]))
        assert heard[0] == heard[-1] == EVENTS[0] and len(heard) <= 3
        assert all(can_be_stored(event) for event in heard)
        seen[heard[1].kind if len(heard) == 3 else "left out"] += 1
    report(record_property, "events of executors", seen)


def test_a_journal_with_damage_anywhere_starts(tmp_path: Path, record_property: Record) -> None:
    dice, seen = random.Random(SEED), Counter[str]()
    spec = JobSpec(("python", "t.py"), "/c", CheckpointPolicy("/k"), "/o", "/l")
    for number in count(200):
        path = tmp_path / f"journal-{number}"
        journal = Journal(path)
        for job in "abcd":
            journal.accept(Start(job=job, generation=1, key=job, spec=spec, devices=("cpu:0",)))
            journal.add_event(Started(job=job, generation=1, devices=("cpu:0",)), 1.0)
        journal.close()
        data = bytearray(path.read_bytes())
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)
        again = Journal(path)
        assert len(again.jobs) >= 2 and len(again.set_aside) <= 2
        assert again.bad_path.exists() == bool(again.set_aside)
        again.close()
        seen[f"{len(again.set_aside)} lines set aside"] += 1
    report(record_property, "damaged journals", seen)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedAgent]:
    made = start_agent(tmp_path_factory.mktemp("target"))
    pid = made.executor.hello()["pid"]
    yield made
    assert made.executor.hello()["pid"] == pid
    made.executor.shutdown()


def test_an_agent_answers_nonsense_and_goes_on(target: RecordedAgent, record_property: Record) -> None:
    dice, seen = random.Random(SEED), Counter[str]()
    spec = target.spec("never", "tiny.py")
    order = wire.dump_instruction(Start(job="never", generation=0, key="k", spec=spec, devices=("none",)))
    requests: list[dict[str, Any]] = [
        {"do": "hello"},
        {"do": "running"},
        {"do": "events", "after": 0, "wait_s": 0.0},
        {"do": "acknowledge", "upto": 0},
        {"do": "apply", "instructions": [order]},
    ]
    line: socket.socket | None = None
    for _ in count(1_000):
        line = line or connect(target.executor.state_dir / SOCKET, 0.5)
        try:
            line.sendall(write_line(spoil(dice.choice(requests), dice), dice))
            answered = line.recv(1 << 20) if dice.random() < 0.5 else b"later"
        except (TimeoutError, ConnectionError):
            answered = b""  # it asked for events with patience, or its line was ended for nonsense
        seen["hung up" if not answered else "sent" if answered == b"later" else "answered"] += 1
        if not answered or dice.random() < 0.2:
            line.close()
            line = None
    if line is not None:
        line.close()
    job = target.tiny("--steps", "3")
    target.listen_late()  # some of the nonsense made sense, and acknowledged what nobody has read
    target.wait_for_end(job, Finished)
    report(record_property, "requests to an agent", seen)


def test_workers_that_say_nonsense_fail_and_others_finish(target: RecordedAgent) -> None:
    dice = random.Random(SEED)
    other = target.tiny("--steps", "60", devices=BOTH[1:])
    for _ in range(10):
        lines = b"".join(write_line(spoil(dice.choice(WORDS), dice), dice) for _ in range(20))
        words = ("liar.py", "lines:" + base64.b64encode(lines).decode())
        job = target.start(target.spec(target.new_job(), *words, retries=0))
        target.wait_for(lambda job=job: target.ends(job), f"the end of {job}")  # type: ignore[misc]
        assert all(can_be_stored(event) for event in target.heard)
    target.wait_for_end(other, Finished)


def test_whatever_is_stopped_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    agent = start_agent(tmp_path)
    job = agent.tiny("--steps", "60", devices=BOTH, logical_workers=4)
    agent.wait_for_step(job, 3)
    process = psutil.Process(agent.executor.hello()["pid"])
    for _ in range(6):
        time.sleep(dice.random())
        victim = dice.choice([process, *process.children(recursive=True)])
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.suspend()
            time.sleep(dice.random() * 4)
            with contextlib.suppress(ExecutorError):
                agent.executor.running()
            victim.resume()
    assert agent.wait_for_end(job, Finished).step == 60
    assert agent.hash_weights(job) == agent.undisturbed("--steps", "60")
    assert len(agent.of(job, Finished)) == 1 and (agent.executor.state_dir / JOURNAL).exists()
    agent.executor.shutdown()
    assert agent.marked() == []
