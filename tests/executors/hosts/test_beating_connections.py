"""Beats between a lead and a host: what proves that one was heard, also while the other's loop is busy."""

import contextlib
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from springtide.errors import ExecutorError
from springtide.executors import boot_clock
from springtide.executors.hosts.beating_connections import BeatingConnection, BeatSender, find_beats
from springtide.executors.hosts.host_agent import HostAgent
from springtide.executors.hosts.host_messages import Leaving, Printed, read_order
from springtide.executors.local.processes.fences import FENCE, Fence, open_watch


@pytest.fixture
def ends() -> Iterator[tuple[BeatingConnection, BeatingConnection]]:
    """The two ends of a line."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    host, lead = BeatingConnection(near), BeatingConnection(far)
    yield host, lead
    host.close()
    lead.close()


def hear(connection: BeatingConnection) -> None:
    """Wait for what was sent, and read it."""
    connection.socket.setblocking(True)
    connection.socket.recv(1, socket.MSG_PEEK)
    connection.socket.setblocking(False)
    connection.read()


def test_a_beat_that_has_waited_in_the_network_proves_nothing(
    ends: tuple[BeatingConnection, BeatingConnection],
) -> None:
    host, lead = ends
    joined_s = host.sure_s
    lead.beat()
    lead.beat()
    hear(host)
    assert host.sure_s == joined_s, "the lead was there, and may have heard nobody"
    before_s = boot_clock.read_s()
    host.beat()
    hear(lead)
    lead.beat()
    time.sleep(0.05)
    read_s = boot_clock.read_s()
    hear(host)
    assert before_s <= host.sure_s < read_s, "it counts from when the beat was sent that the lead has heard"


def test_beats_are_heard_while_what_was_said_before_them_waits_to_be_read(
    ends: tuple[BeatingConnection, BeatingConnection],
) -> None:
    host, lead = ends
    senders = [BeatSender(0.02), BeatSender(0.02)]
    for sender, connection in zip(senders, ends, strict=True):
        connection.send(Leaving("leaving", 1.0, "x" * 5000))
        sender.add(connection)
    since_s, heard_s = boot_clock.read_s(), lead.heard_s
    until_s = time.monotonic() + 30.0
    while (host.sure_s < since_s or lead.heard_s == heard_s) and time.monotonic() < until_s:
        time.sleep(0.02)
    for sender in senders:
        sender.close()
    assert host.sure_s >= since_s and lead.heard_s > heard_s, "nobody has read, and both are there"
    assert host.read()[0]["say"] == "leaving", "what was looked at stays there"


def test_a_beat_without_a_stamp_proves_nothing(ends: tuple[BeatingConnection, BeatingConnection]) -> None:
    host, lead = ends
    joined_s = host.sure_s
    lead.write({"say": "beat"})
    hear(host)
    assert host.sure_s == joined_s
    with pytest.raises(ValueError, match="stamp_s"):
        read_order({"say": "beat"})


def carry(source: socket.socket, target: socket.socket, bytes_per_s: float) -> None:
    """Be a wire in one direction."""
    with contextlib.suppress(OSError):
        while data := source.recv(4096):
            target.sendall(data)
            time.sleep(len(data) / bytes_per_s)


@pytest.fixture
def slow_ends() -> Iterator[tuple[BeatingConnection, BeatingConnection]]:
    """The two ends of a line of 500 kB/s."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as middle:
        middle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        near = socket.create_connection(middle.getsockname())
        inner, _ = middle.accept()
        outer = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    for source, target, bytes_per_s in ((inner, outer, 500e3), (outer, inner, 500e6)):
        threading.Thread(target=carry, args=(source, target, bytes_per_s), daemon=True).start()
    host, lead = BeatingConnection(near), BeatingConnection(far)
    for connection in (host, lead):
        connection.trust()
    yield host, lead
    for end in (host, lead, inner, outer):
        end.close()


def test_a_host_whose_guests_print_more_than_its_line_takes_stays_sure_of_its_lead(
    slow_ends: tuple[BeatingConnection, BeatingConnection],
) -> None:
    host, lead = slow_ends
    senders = [BeatSender(0.1), BeatSender(0.1)]
    for sender, connection in zip(senders, slow_ends, strict=True):
        sender.add(connection)
    printed = Printed("printed", "start", "worker", "x" * 60_000)
    until_s = time.monotonic() + 5.0
    while time.monotonic() < until_s:
        if not host.is_crowded:
            host.send(printed)
        host.flush()
        host.read()
        lead.read()
        time.sleep(0.002)
    sure_s = host.sure_s
    for sender in senders:
        sender.close()
    assert boot_clock.read_s() - sure_s < 2.5 and host.is_crowded


def test_what_is_no_beat_is_not_found() -> None:
    beat = {"say": "beat", "stamp_s": 1.0, "echo_s": None}
    text = b'e": "beat"}\n' + json.dumps(beat).encode() + b'\n["beat"]\n{"say": "beat", "st'
    assert [one for one in find_beats(text) if one] == [beat]


def test_a_lease_that_is_not_renewed_is_over(tmp_path: Path) -> None:
    fence = Fence(tmp_path / "lease", 4.0)
    watch = open_watch(fence.variables)
    assert watch is not None and not watch.is_over
    fence.renew(None, boot_clock.read_s() - 4.0)
    assert watch.is_over
    fence.renew(None, boot_clock.read_s())
    assert not watch.is_over
    assert open_watch({}) is None


def test_a_connection_that_ends_while_it_renews_takes_nothing_back_of_the_lease_of_the_next_one(tmp_path: Path) -> None:
    fence = Fence(tmp_path / "lease", 4.0)
    watch = open_watch(fence.variables)
    agent: Any = SimpleNamespace(fence=fence)
    new: Any = SimpleNamespace(sure_s=boot_clock.read_s())

    class EndingConnection:
        """A connection in whose place another one comes just when the thread that beats asks it."""

        @property
        def sure_s(self) -> float:
            fence.take(new, new.sure_s)
            return float(boot_clock.read_s() - 10.0)

    old: Any = EndingConnection()
    fence.take(old, boot_clock.read_s())
    HostAgent.renew_fence(agent, old)
    assert watch is not None and not watch.is_over
    HostAgent.renew_fence(agent, old)
    assert not watch.is_over, "nor afterwards"
    new.sure_s = boot_clock.read_s() - 4.0
    HostAgent.renew_fence(agent, new)
    assert watch.is_over, "the connection that holds it says so"


def test_a_lease_can_be_read_by_others_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        Fence(tmp_path / "lease", 4.0)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "lease").stat().st_mode) == 0o644


def test_a_fork_server_that_cannot_read_its_lease_does_not_serve(tmp_path: Path) -> None:
    for told in (f"4.0:{tmp_path / 'gone'}", f"soon:{tmp_path}"):
        with pytest.raises(ExecutorError, match=r"the lease in .* cannot be read"):
            open_watch({FENCE: told})
