"""Lines never make their owner wait, whatever the peer does, and sockets may lie in deep folders."""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from springtide.executors.local.json_connections import JsonConnection, connect, listen, read_peer_pid

Ends = tuple[JsonConnection, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A line and its peer's socket."""
    ours, theirs = socket.socketpair()
    connection = JsonConnection(ours)
    yield connection, theirs
    connection.close()
    theirs.close()


def test_whole_messages_come_out_however_they_come_in(ends: Ends) -> None:
    connection, peer = ends
    peer.sendall(b'{"a": 1}\n{"b"')
    assert connection.read() == [{"a": 1}]
    peer.sendall(b": 2}\n")
    assert connection.read() == [{"b": 2}]
    assert connection.read() == [] and connection.open
    peer.close()
    assert connection.read() == [] and not connection.open


class SilentSocket:
    """A line whose other end has not answered for a quarter of an hour."""

    def setblocking(self, flag: bool) -> None:
        pass

    def recv(self, size: int) -> bytes:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    def close(self) -> None:
        pass


def test_a_line_that_times_out_has_ended() -> None:
    connection = JsonConnection(SilentSocket())  # type: ignore[arg-type]
    assert connection.read() == [] and not connection.open


@pytest.mark.parametrize("nonsense", [b"\xff\xfe\n", b"[1, 2]\n", b"{broken\n"])
def test_nonsense_ends_the_line(ends: Ends, nonsense: bytes) -> None:
    connection, peer = ends
    peer.sendall(nonsense)
    assert connection.read() == [] and not connection.open


def test_a_peer_that_does_not_read_is_not_waited_for(ends: Ends) -> None:
    connection, peer = ends
    text = "x" * 1_000_000
    connection.write({"text": text})
    assert connection.outgoing
    received = b""
    while not received.endswith(b"\n"):
        received += peer.recv(1 << 20)
        connection.flush()
    assert not connection.outgoing and len(received) > len(text)


def test_one_turn_reads_only_so_much(ends: Ends) -> None:
    connection, peer = ends
    whole = b'{"n": 1}\n' * 1000
    peer.sendall(whole)
    assert len(connection.read()) == 1000 and not connection.has_more
    connection.incoming = b"x" * (65 << 20)
    assert connection.read() == [] and not connection.open


def test_sockets_may_lie_deep_and_are_private(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-rather-long-name-of-a-folder"] * 6)
    deep.mkdir(parents=True)
    listener = listen(deep / "agent.sock")
    assert (deep / "agent.sock").stat().st_mode & 0o777 == 0o600
    line = connect(deep / "agent.sock")
    taken, _ = listener.accept()
    assert read_peer_pid(taken) == os.getpid()
    for opened in (line, taken, listener):
        opened.close()
    with pytest.raises(OSError):
        connect(deep / "agent.sock")
