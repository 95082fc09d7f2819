"""An executor that hangs keeps nobody else waiting, is told of with its age, and misses nothing when it goes on."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest
from tests.control.hand_clock import POLICY
from tests.control.http_servers import connect, run_server, write_project

from springtide.client.client import Client
from springtide.control.executor_factory import open_executor
from springtide.control.scheduling.loop.non_blocking_executor import NonBlockingExecutor, UnansweredError
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.server import Listening, Server, ServerSettings
from springtide.control.storage.state_dir import StateDir
from springtide.core.job_states import JobState
from springtide.executors.fake import RealTimeFake
from springtide.executors.local import executor as local_executor
from springtide.executors.local.executor import LocalExecutor
from springtide.executors.local.paths import AGENT_NOTES
from springtide.executors.protocol import Event


class Gate:
    """A call that hangs until it is let go."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.calls = 0

    def pass_through(self) -> str:
        self.calls += 1
        self.entered.set()
        self.open.wait()
        return "through"


def wait_until(server: Server, condition: Callable[[], object]) -> None:
    """Let steps pass until something holds; whoever hands a step in is answered, or this fails."""
    while not condition():
        server.reconciler.call(lambda: None).result(timeout=30)


def test_a_call_without_an_answer_is_left_and_no_other_is_made_until_it_ends() -> None:
    gate, line = Gate(), NonBlockingExecutor(RealTimeFake(), patience_s=0.0)
    with pytest.raises(UnansweredError, match="has not answered"):
        line.ask(gate.pass_through)
    assert gate.entered.wait(30)
    for _ in range(3):
        with pytest.raises(UnansweredError):
            line.ask(gate.pass_through)
    gate.open.set()
    assert line.wait(30.0).value == "through" and gate.calls == 1
    line.patience_s = 30.0
    assert line.ask(gate.pass_through) == "through" and line.running() == ()
    line.close()


@pytest.mark.parametrize("error", [TimeoutError("no answer in time"), ValueError("nonsense"), KeyboardInterrupt()])
def test_what_a_call_raises_is_raised_where_it_was_asked_for(error: BaseException) -> None:
    def fail() -> None:
        raise error

    line = NonBlockingExecutor(RealTimeFake(), patience_s=30.0)
    with pytest.raises(type(error)) as raised:
        line.ask(fail)
    assert raised.value is error and line.running() == ()
    line.close()


def test_events_are_forgotten_with_the_next_look_at_them_which_is_one_call_for_both() -> None:
    executor, asked = RealTimeFake(), list[int]()
    line = NonBlockingExecutor(executor, patience_s=30.0)
    executor.acknowledge = lambda upto: asked.append(upto)  # type: ignore[method-assign]
    for upto in (3, 5):
        line.acknowledge(upto)
    assert asked == [] and not line.is_owed, "whoever is answered waits for no call"
    for _ in range(2):
        assert line.events(5) == ()
    assert asked == [5]
    line.close()


def test_what_could_not_be_forgotten_is_forgotten_with_the_next_and_holds_no_events_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    executor, asked = RealTimeFake(), list[int]()

    def forget(upto: int) -> None:
        asked.append(upto)
        if len(asked) == 1:
            raise TimeoutError("no answer in time")

    line = NonBlockingExecutor(executor, patience_s=30.0)
    executor.acknowledge = forget  # type: ignore[method-assign]
    for upto in (4, 6):
        line.acknowledge(upto)
        assert line.events(upto) == () == line.events(upto)
    assert asked == [4, 6] and "does not forget events up to 4" in caplog.text
    line.close()


def test_others_are_answered_while_the_executor_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()

    def hang(after: int) -> Sequence[Event]:
        gate.pass_through()
        return ()

    with run_server(tmp_path) as server, connect(server) as client:
        monkeypatch.setattr(server.engine.executor, "events", hang)
        assert gate.entered.wait(30)
        path = write_project(tmp_path / "project")
        job, other = client.submit(path), client.submit(path)
        assert client.cancel(other.id).state == JobState.CANCELLED
        wait_until(server, lambda: server.reconciler.health.executor_lost)
        assert gate.calls == 1, "the hung call is the only one there was, and it still hangs"
        told = httpx.get(f"{server.url}/readyz").json()["checks"]["executor"]
        assert not told["ok"] and told["age_s"] >= 2.0 and "has not answered" in told["sentence"]
        assert "the executor has not answered for" in client.why(job).facts[0]
        assert client.ask("GET", f"/api/v1/jobs/{job.id}")["state"] in (JobState.ADMITTED, JobState.PROBING)
        monkeypatch.undo()
        gate.open.set()
        wait_until(server, lambda: not server.reconciler.health.executor_lost)
        assert client.wait(job.id).state == JobState.SUCCEEDED
        kinds = [event.kind for event in server.store.events(None, 0, 1000)]
        assert (kinds.count("executor_lost"), kinds.count("executor_back")) == (1, 1)


@contextmanager
def run_local(folder: Path) -> Iterator[Server]:
    """A server with a real agent."""
    home = StateDir(folder / "home").make()
    settings = ServerSettings(home, "local", "2", Listening(port=0), ServerOptions(policy=POLICY))
    server = Server(settings, open_executor("local", home, "2"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.request_stop()
        thread.join()


@pytest.mark.slow
def test_others_are_answered_while_the_agent_is_stopped_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # as where the system does not say who is at the other end, so that the line cannot see that it is stopped
    monkeypatch.setattr(local_executor, "read_peer_pid", lambda line: None)
    with run_local(tmp_path) as server:
        home = server.settings.state_dir.root
        agent = psutil.Process(json.loads((home / AGENT_NOTES).read_text())["pid"])
        with Client(server.url, None, home) as client:
            project = write_project(tmp_path / "project", elastic=False, devices=1)
            agent.suspend()
            try:
                wait_until(server, lambda: server.reconciler.health.executor_lost)
                job, other = client.submit(project, wait=False), client.submit(project, wait=False)
                client.cancel(other.id)
                assert [one.id for one in client.jobs()] == [job.id]
                assert httpx.get(f"{server.url}/readyz").status_code == 503
                with pytest.raises(Exception, match=r"holds no device|has not answered"):
                    client.ask("GET", f"/api/v1/jobs/{job.id}/inside")
                assert agent.status() == psutil.STATUS_STOPPED, "all that was answered meanwhile"
            finally:
                agent.resume()
            assert client.wait(job.id).state == JobState.SUCCEEDED
            assert [event.kind for event in client.events(job.id)].count("succeeded") == 1
            assert httpx.get(f"{server.url}/readyz").status_code == 200


def test_a_server_starts_beside_a_stopped_agent(tmp_path: Path) -> None:
    executor = LocalExecutor(StateDir(tmp_path / "home").make().root, "2", warm=False)
    agent = psutil.Process(executor.hello()["pid"])
    executor.close()
    agent.suspend()
    try:
        with run_local(tmp_path) as server, Client(server.url, None, server.settings.state_dir.root) as client:
            wait_until(server, lambda: server.reconciler.health.executor_lost)
            assert server.engine.inventory.totals == {"cpu": 2}, "as the agent wrote them down"
            told = httpx.get(f"{server.url}/readyz")
            assert (
                told.status_code == 503 and f"kill -CONT {agent.pid}" in told.json()["checks"]["executor"]["sentence"]
            )
            job = client.submit(write_project(tmp_path / "project", elastic=False, devices=1), wait=False)
            assert [one.id for one in client.jobs()] == [job.id]
            client.cancel(job.id)
            assert agent.status() == psutil.STATUS_STOPPED, "all that was answered meanwhile"
            agent.resume()
            wait_until(server, lambda: not server.reconciler.health.executor_lost)
            assert httpx.get(f"{server.url}/readyz").status_code == 200
    finally:
        with suppress(psutil.NoSuchProcess):
            agent.resume()
    assert not agent.is_running(), "ended with the server"
