"""What workers say that cannot be costs their own job, with a sentence; the agent and other jobs go on."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from tests.executors.local.agents import BOTH, RecordedAgent, start_agent

from springtide.errors import ExecutorError
from springtide.executors.local import executor as local_executor
from springtide.executors.local.executor import SilentAgentError
from springtide.executors.local.jobs.attempt import AttemptOptions
from springtide.executors.local.jobs.hangs import Patience
from springtide.executors.local.json_connections import connect
from springtide.executors.local.paths import SOCKET
from springtide.executors.local.processes.cgroups import GroupLimits, open_groups
from springtide.executors.local.processes.fork_servers import ForkBudget
from springtide.executors.protocol import Failed, Faulted, Finished, Warned

LIES = {
    "total": json.dumps(
        {"event": "planned", "logical_workers": 1, "steps_per_epoch": 2, "step": 0, "total_steps": 2**63}
    ),
    "text-for-a-number": '{"event": "progressed", "step": "1", "epoch": 0}',
    "bool-for-a-number": '{"event": "progressed", "step": true, "epoch": 0}',
    "negative": '{"event": "progressed", "step": -1, "epoch": 0}',
    "fraction": '{"event": "progressed", "step": 1.5, "epoch": 0}',
    "not-finite": '{"event": "epoch", "outside_s": NaN}',
    "endless": '{"event": "epoch", "outside_s": 1e999}',
    "nothing-known": '{"event": "dance"}',
    "no-event": "{}",
    "a-list": "[1, 2]",
    "no-json": "hello",
    "another-store": '{"event": "store", "address": "127.0.0.1:1"}',
    "metrics": '{"event": "logged", "step": 1, "metrics": {"loss": "low"}}',
    "list-of-events": '{"event": ["planned"]}',
}


def start_liar(recorded: RecordedAgent, *words: str, **fields: object) -> str:
    return recorded.start(recorded.spec(recorded.new_job(), "liar.py", *words, retries=0, **fields))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedAgent]:
    """An agent that must outlive all of this."""
    options = AttemptOptions(patience=Patience(idle_s=2.0), forks=ForkBudget(idle_servers=1))
    made = start_agent(tmp_path_factory.mktemp("hosts"), options=options)
    pid = made.executor.hello()["pid"]
    yield made
    assert made.executor.hello()["pid"] == pid, "the agent did not live through this"
    made.executor.shutdown()
    assert made.marked() == []


@pytest.mark.parametrize("lie", LIES)
def test_what_cannot_be_fails_the_job_that_says_it(hosts: RecordedAgent, lie: str) -> None:
    failed = hosts.wait_for_end(start_liar(hosts, f"raw:{LIES[lie]}"), Failed)
    assert (failed.code, failed.user_fault) == ("bad_message", True)
    assert "said to the agent what cannot be" in failed.reason and len(failed.reason) < 1000


@pytest.mark.parametrize("size", ["huge", "deep"])
def test_a_message_of_no_size_fails_the_job_that_says_it(hosts: RecordedAgent, size: str) -> None:
    assert hosts.wait_for_end(start_liar(hosts, size), Failed).code == "bad_message"


def test_a_run_for_ever_is_refused_with_the_remedy(hosts: RecordedAgent) -> None:
    failed = hosts.wait_for_end(start_liar(hosts, "for-ever"), Failed)
    assert failed.exit_code == 2 and "run.stop" in failed.reason and "1e+12" in failed.reason


def test_a_reason_that_is_no_text_is_shown_as_what_it_is(hosts: RecordedAgent) -> None:
    job = start_liar(hosts, "surrogate")
    assert hosts.wait_for_end(job, Finished).reason == "caf\\udce9 \\x1b[2J"
    rows = [json.loads(line) for line in (hosts.folder / job / "logs" / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["metrics"] == {"loss": "nan", "most": "inf"}


def test_a_flood_of_words_stays_in_the_log(hosts: RecordedAgent) -> None:
    job = start_liar(hosts, "flood")
    hosts.wait_for_end(job, Finished)
    assert 90 <= len(hosts.of(job, Warned)) < 300


def test_a_crowd_of_lines_takes_none_from_others(hosts: RecordedAgent) -> None:
    crowd = start_liar(hosts, "lines")
    other = hosts.tiny("--steps", "10", devices=BOTH[1:])
    hosts.wait_for_end(other, Finished)
    hosts.wait_for(lambda: hosts.ends(crowd), "the end of the crowd, however it ends")
    agent = psutil.Process(hosts.executor.hello()["pid"])
    assert agent.num_fds() < 100


def test_waiting_between_epochs_is_no_hang(hosts: RecordedAgent) -> None:
    job = start_liar(hosts, "wait", "5")  # longer than the two seconds after which an idle job hangs inside steps
    busy = start_liar(hosts, "wait-inside-busy", "5")
    for one in (job, busy):
        hosts.wait_for_end(one, Finished)
        assert hosts.of(one, Faulted) == []


@pytest.mark.whole
def test_a_hang_teaches_patience(hosts: RecordedAgent) -> None:
    job = hosts.tiny("--steps", "3", "--sleep", "4", "--workers", "1")
    hosts.wait_for_end(job, Finished)
    assert [fault.cause for fault in hosts.of(job, Faulted)] == ["hung"]
    patient = hosts.tiny("--steps", "3", "--sleep", "4", "--workers", "1", patience_s=60.0)
    hosts.wait_for_end(patient, Finished)
    assert hosts.of(patient, Faulted) == []


DAEMON = """
import os, pathlib, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)"], {})
    os._exit(0)
"""


@pytest.mark.parametrize("grouped", [True, False], ids=["cgroup", "subreaper"])
def test_no_daemon_outlives_its_job(tmp_path: Path, grouped: bool) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "daemon.py").write_text(DAEMON)
    command = (
        f"import subprocess, sys; subprocess.run([sys.executable, 'daemon.py', {str(tmp_path / 'pid')!r}], env={{}})"
    )
    (code / "train.py").write_text(f"{command}\nimport time\ntime.sleep(1)\n")
    options = AttemptOptions(limits=GroupLimits(enabled=grouped))
    agent = start_agent(tmp_path, options=options, warm=False)
    groups = open_groups("test-of-groups", GroupLimits()) if grouped else None
    if grouped and groups is None:
        pytest.skip("no cgroup v2 in which groups may be made")
    if groups is not None:
        groups.close()
    try:
        job = agent.start(agent.spec("job", "train.py", folder=code, elastic=False))
        agent.wait_for_end(job, Finished)
        pid = int((tmp_path / "pid").read_text())
        until_s = time.monotonic() + 30
        while psutil.pid_exists(pid) and time.monotonic() < until_s:
            time.sleep(0.05)
        assert not psutil.pid_exists(pid)
    finally:
        agent.executor.shutdown()


def read_command(process: psutil.Process) -> list[str]:
    """The words a process was started with; none if it ends meanwhile."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_fork_servers_that_nobody_uses_are_let_go(hosts: RecordedAgent) -> None:
    for number in range(3):
        hosts.wait_for_end(hosts.tiny("--steps", "2", env={"OMP_PROC_BIND": f"false{' ' * number}"}), Finished)
    agent = psutil.Process(hosts.executor.hello()["pid"])
    until_s = time.monotonic() + 30

    def count() -> int:
        return sum("fork_server_main" in " ".join(read_command(child)) for child in agent.children())

    while count() > 2 and time.monotonic() < until_s:
        time.sleep(0.1)
    assert count() <= 2  # the one that most jobs use, and the newest of the others


def test_a_stopped_agent_is_seen_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_executor, "LOOK_S", 0.1)
    agent = start_agent(tmp_path, warm=False)
    process, found = psutil.Process(agent.executor.hello()["pid"]), agent.executor.devices()
    try:
        process.suspend()
        assert agent.executor.devices() == found
        with pytest.raises(ExecutorError, match=f"kill -CONT {process.pid}"):
            agent.executor.running()
        with pytest.raises(ExecutorError, match="SIGSTOP"):
            agent.executor.wait(0, 30.0)
        lines = ExitStack()
        with pytest.raises(TimeoutError), lines:  # until its queue is full
            while True:
                lines.enter_context(connect(agent.executor.state_dir / SOCKET, 0.1))
        with pytest.raises(SilentAgentError, match="takes no more connections"):
            agent.executor.running()
        with pytest.raises(SilentAgentError, match="was not ended"):
            agent.executor.shutdown()
        assert agent.executor.devices() == found
        process.resume()
        assert agent.executor.running() == ()
    finally:
        process.resume()
        agent.executor.shutdown()
