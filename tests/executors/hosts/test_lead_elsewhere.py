"""A server on another machine than the lead: it reaches it over the network, and starts one only if none is left."""

import contextlib
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.executors.conformance.trials import Behaviour, Trial
from tests.executors.hosts.loopback_cluster import HostsHarness, LoopbackCluster, wait_until

from springtide.executors.hosts.host_messages import Challenge, ServerIntroduction, prove
from springtide.executors.hosts.lead_address import KEY, read_key, read_lead, write_lead
from springtide.executors.hosts.lead_dialer import dial_as_server, receive, send
from springtide.executors.hosts.lead_executor import LeadExecutor
from springtide.executors.local.json_connections import listen
from springtide.executors.local.paths import SOCKET
from springtide.executors.protocol import Faulted, Finished

SHORT = Behaviour(steps=60, step_s=0.02)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LoopbackCluster]:
    made = LoopbackCluster(tmp_path)
    yield made
    made.close()


def hide_socket(cluster: LoopbackCluster) -> None:
    """Have the lead as another machine sees it: a socket on shared storage at which nobody of this machine listens."""
    path = cluster.home / SOCKET
    path.rename(cluster.folder / SOCKET)
    listen(path).close()


def test_a_server_on_another_machine_finds_the_lead_and_its_jobs_at_work(cluster: LoopbackCluster) -> None:
    cluster.start_host("h1")
    cluster.wait_for_hosts("h1")
    trial = Trial(HostsHarness(cluster, ("h1/cpu:0",)), "job")
    trial.start(Behaviour(steps=150, step_s=0.02), devices=("h1/cpu:0",))
    trial.await_step(5)
    lead = cluster.executor.hello()["pid"]
    hide_socket(cluster)
    cluster.executor.close()
    cluster.executor = LeadExecutor(cluster.home, listen=cluster.address)
    assert cluster.executor.hello()["pid"] == lead and cluster.list_there() == ["h1"]
    assert [one.job for one in cluster.executor.running()] == ["job"]
    trial.await_event(Finished)
    assert not trial.of(Faulted), "the job did not notice"
    cluster.executor.shutdown()
    assert not cluster.executor.is_up and cluster.agents["h1"].wait(60) == 0


def test_where_no_lead_is_left_a_server_starts_one_on_its_journal(cluster: LoopbackCluster) -> None:
    before = cluster.executor.hello()["pid"]
    hide_socket(cluster)
    os.kill(before, signal.SIGKILL)
    other = LeadExecutor(cluster.home, listen=cluster.address)
    wait_until(lambda: other.hello()["pid"] != before, lambda: "no other lead")
    with contextlib.closing(other.dial()) as line:
        assert line.is_here
    other.close()


@pytest.mark.slow
def test_a_host_with_its_own_disk_follows_the_lead_that_it_is_told_of(tmp_path: Path) -> None:
    """Two servers whose homes are their own: the second one takes over, and its keeper tells the hosts by Ray."""
    first, second = (LoopbackCluster(tmp_path / name, storage="s3://nowhere") for name in ("first", "second"))
    try:
        state = first.state_of("h1")
        state.mkdir()
        write_lead(state, read_lead(first.home))
        first.start_host("h1", home=tmp_path / "nowhere")
        first.wait_for_hosts("h1")
        write_lead(state, read_lead(second.home))
        second.wait_for_hosts("h1")
        first.wait_for_hosts()
        assert first.agents["h1"].poll() is None
    finally:
        second.close()
        first.close()


def test_who_knows_the_token_of_hosts_only_is_no_server(cluster: LoopbackCluster) -> None:
    lead = read_lead(cluster.home)
    key = read_key(cluster.home)
    assert (cluster.home / KEY).stat().st_mode & 0o077 == 0 and key != lead.token
    with pytest.raises(OSError, match="does not know the key of this home"):
        dial_as_server(lead, lead.token, 5.0)
    with socket.create_connection((lead.host, lead.port), timeout=5.0) as line:
        challenge = receive(line, time.monotonic() + 5)
        assert isinstance(challenge, Challenge)
        nonce = secrets.token_hex(16)
        send(line, ServerIntroduction("server", nonce, prove(key, "server", "of another line", nonce)))
        line.sendall(b'{"do": "hello"}\n')
        assert "pid" not in str(receive(line, time.monotonic() + 5)), (
            "a proof that was heard elsewhere is worth nothing here"
        )
    dial_as_server(lead, key, 5.0).close()
    cluster.executor.hello()
