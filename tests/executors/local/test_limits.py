"""Jobs are held to their memory and their number of processes by the kernel, and one that passes them ends alone.

The kernel's part needs the memory and pids controllers of cgroup v2; `make test-limits` runs it on a kernel of its own
and sets $SPRINGTIDE_LIMITS, with which it fails instead of being skipped.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.executors.local.agents import BOTH, RecordedAgent, start_agent

from springtide.executors.local.jobs.attempt import AttemptOptions
from springtide.executors.local.processes.cgroups import GroupLimits, open_groups
from springtide.executors.protocol import Failed, Finished

MIB = 1 << 20
GREEDY = """
import sys, time
held = bytearray()
for _ in range(int(sys.argv[1])):
    held += b"x" * (1 << 20)
print("took", len(held) >> 20, "MiB", flush=True)
"""
WAITING = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""
FORKING = """
import os, time
children = []
try:
    for _ in range(500):
        child = os.fork()
        if child == 0:
            time.sleep(1000)
        children.append(child)
except BlockingIOError:
    print("forked", len(children), flush=True)
"""


def can_limit() -> bool:
    """Whether the controllers are ours to use on this machine."""
    groups = open_groups(f"test-of-limits-{os.getpid()}", GroupLimits())
    if groups is None:
        return False
    held = groups.limits_memory
    groups.close()
    return held


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedAgent]:
    made = start_agent(tmp_path_factory.mktemp("limits"), options=AttemptOptions(limits=GroupLimits(pids=50)))
    yield made
    made.executor.shutdown()


@pytest.fixture
def controllers() -> None:
    if "SPRINGTIDE_LIMITS" not in os.environ and not can_limit():
        pytest.skip("the memory and pids controllers of cgroup v2 are not ours to use here; make test-limits has them")


def start_script(
    agent: RecordedAgent, text: str, *words: str, devices: Sequence[str] = BOTH[:1], **fields: object
) -> str:
    job = agent.new_job()
    code = agent.folder / f"code-{job}"
    code.mkdir()
    (code / "script.py").write_text(text)
    spec = agent.spec(job, "script.py", *words, folder=code, elastic=False, retries=0, **fields)
    return agent.start(spec, devices)


def read_log(agent: RecordedAgent, job: str) -> str:
    return Path(agent.folder / job / "logs" / "rank-0.log").read_text()


@pytest.mark.usefixtures("controllers")
def test_a_job_that_passes_its_memory_ends_alone_and_is_told_why(agent: RecordedAgent) -> None:
    beside = start_script(agent, WAITING, str(agent.folder / "go"), devices=BOTH[1:], memory_bytes=400 * MIB)
    job = start_script(agent, GREEDY, "600", memory_bytes=200 * MIB)
    end = agent.wait_for_end(job, Failed)
    assert end.code == "out_of_memory" and end.user_fault and end.exit_code == -9
    assert "passed the 200 MiB of memory" in end.reason and "`memory`" in end.reason
    assert "took" not in read_log(agent, job)
    (agent.folder / "go").touch()
    agent.wait_for_end(beside, Finished)


@pytest.mark.usefixtures("controllers")
def test_a_job_within_its_memory_is_left_alone(agent: RecordedAgent) -> None:
    job = start_script(agent, GREEDY, "100", memory_bytes=400 * MIB)
    agent.wait_for_end(job, Finished)
    assert "took 100 MiB" in read_log(agent, job) and "not held" not in read_log(agent, job)


@pytest.mark.usefixtures("controllers")
def test_a_job_has_so_many_processes_and_no_more(agent: RecordedAgent) -> None:
    job = start_script(agent, FORKING)
    agent.wait_for_end(job, Finished)
    forked = int(read_log(agent, job).split("forked ")[1].split()[0])
    assert 0 < forked < 50


def test_where_a_job_cannot_be_held_to_its_memory_its_log_says_so(agent: RecordedAgent) -> None:
    if can_limit():
        pytest.skip("this machine holds jobs to their memory")
    job = start_script(agent, GREEDY, "1", memory_bytes=400 * MIB)
    agent.wait_for_end(job, Finished)
    assert "this job is not held to its memory" in read_log(agent, job)
