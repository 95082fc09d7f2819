"""What a lead does with strangers: nothing they say joins or holds it up; and routes by which hosts are reached."""

import contextlib
import errno
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.executors.hosts.loopback_cluster import LoopbackCluster, wait_until

from springtide.executors.hosts.beating_connections import BeatingConnection
from springtide.executors.hosts.host_agent import choose_network
from springtide.executors.hosts.host_hub import FORGET_S, MOST_REFUSED, Caller, HostHub
from springtide.executors.hosts.host_messages import DeviceOffer, Ready, Rejection, prove, read_report
from springtide.executors.hosts.host_roll import ROLL, read_roll
from springtide.executors.hosts.lead_address import HOSTS, LeadAddress, read_lead
from springtide.executors.hosts.lead_dialer import dial
from springtide.executors.hosts.network_routes import Route, find_route_to
from springtide.executors.local.jobs.places import LocalPlace
from springtide.executors.local.json_connections import EventLoop
from springtide.executors.protocol import Event, MachineLoaded, NodeForgotten, NodeJoined


def introduce(host: str) -> bytes:
    said = {"say": "introduction", "host": host, "nonce": "n", "proof": "made up", "version": "1"}
    return json.dumps(said).encode() + b"\n"


@pytest.fixture(scope="module")
def lead(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    made = LoopbackCluster(tmp_path_factory.mktemp("lead"))
    yield made
    made.close()


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"say": "ready", "address": "x", "devices": []}\n',
        b'{"say": "exited", "start": "s", "process": "p0", "code": 0}\n',
        b'{"say": "beat"}\n',
        b"\xff" * (1 << 17),
        json.dumps({"say": "introduction", "host": "h", "nonce": "n", "proof": "no", "version": "1"}).encode() + b"\n",
        json.dumps({"say": "introduction", "host": "../h", "nonce": "n", "proof": "n", "version": "1"}).encode()
        + b"\n",
    ],
    ids=["http", "ready", "exited", "beat", "long", "wrong proof", "bad name"],
)
def test_a_stranger_is_hung_up_on(lead: LoopbackCluster, said: bytes) -> None:
    address = read_lead(lead.home)
    with socket.create_connection((address.host, address.port), timeout=30) as line:
        assert json.loads(line.makefile().readline())["say"] == "challenge"
        line.sendall(said)
        while line.recv(1 << 16):
            pass
    assert lead.executor.nodes() == ()


def test_the_token_lies_where_only_its_owner_reads_it(lead: LoopbackCluster) -> None:
    assert (lead.home / HOSTS).stat().st_mode & 0o077 == 0
    assert prove("token", "host", "a") != prove("token", "lead", "a"), "an answer could be sent back as one's own"


def test_collectives_use_the_interface_that_leads_to_the_lead() -> None:
    route = find_route_to("127.0.0.1")
    assert route.address == "127.0.0.1" and route.interface
    told = choose_network(Route("10.0.0.7", "eth1"), {"NCCL_SOCKET_IFNAME": "ib0"})
    assert told == {"SPRINGTIDE_ADDRESS": "10.0.0.7", "GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "ib0"}


def test_what_hosts_say_can_be_kept() -> None:
    said = {"say": "rejection", "reason": "no \udcff\x1b[2J disk"}
    assert read_report(said) == Rejection("rejection", "no \\udcff\\x1b[2J disk")
    with pytest.raises(ValueError, match="cannot be written as UTF-8"):
        read_report({"say": "state", "start": "job", "torch_version": "2.\udcff"})
    with pytest.raises(ValueError, match="less than or equal"):
        read_report({"say": "forked", "start": "job", "process": "0", "pid": 2**63})


class BadStart:
    """A start whose reports cannot be acted on."""

    error: Exception = OSError("No space left on device")

    def hear(self, host: str, report: object) -> None:
        raise self.error


def test_a_lead_without_room_for_a_log_loses_no_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The host would be given up after two seconds, with all its jobs, because a file of one could not be opened."""
    nobody: Any = None
    place = LocalPlace(EventLoop(), nobody, tmp_path, {}, {}, "python")
    hub = HostHub(place, tmp_path, "127.0.0.1", lambda event: None)
    line: Any = SimpleNamespace(host="h1", joined=True)
    bad: Any = BadStart()
    hub.starts["s"] = bad
    report = read_report({"say": "printed", "start": "s", "process": "p0", "data": ""})
    hub.hear(line, report)
    assert "No space left" in capsys.readouterr().err
    bad.error = ValueError("a report on process 'p9', which is not there")
    with pytest.raises(ValueError, match="p9"):
        hub.hear(line, report)
    hub.close()


def join(hub: HostHub, *types: str, host: str = "h1") -> Caller:
    """Have a host join with a device of each type."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = Caller(
            BeatingConnection(socket.create_connection(listener.getsockname())), "n", time.monotonic(), host
        )
    hub.callers.append(caller)
    hub.join(caller, Ready("ready", "127.0.0.1", tuple(DeviceOffer(f"{one}:0", one) for one in types)))
    return caller


@pytest.mark.parametrize(
    ("first", "then", "named"),
    [(("a100", "t4"), ("a100",), {"a100": "h1.a100"}), (("a100",), ("a100", "t4"), {"a100": "h1", "t4": "h1.t4"})],
    ids=["one is gone", "one has come"],
)
def test_the_nodes_of_a_host_keep_their_names_whatever_types_it_has(
    tmp_path: Path, first: tuple[str, ...], then: tuple[str, ...], named: dict[str, str]
) -> None:
    nobody: Any = None
    told: list[Event] = []
    place = LocalPlace(EventLoop(), nobody, tmp_path, {}, {}, "python")
    hub = HostHub(place, tmp_path, "127.0.0.1", told.append)
    hub.end(join(hub, *first), "its devices are others")
    join(hub, *then)
    hub.close()
    later = HostHub(place, tmp_path, "127.0.0.1", told.append)
    join(later, *then)
    for one in (hub, later):
        assert {node.device_type: node.name for node in one.list_nodes()} == named
    joined = {(one.node, one.device_type) for one in told if isinstance(one, NodeJoined)}
    assert len({node for node, _ in joined}) == len(joined), "a name is that of one type for ever"
    later.close()


def make_hub(folder: Path, hear: Callable[[Event], None] = lambda event: None) -> HostHub:
    """A lead of the home in a folder."""
    nobody: Any = None
    return HostHub(LocalPlace(EventLoop(), nobody, folder, {}, {}, "python"), folder, "127.0.0.1", hear)


@pytest.mark.parametrize("lost", ["with the lead", "just before the lead"])
def test_a_new_lead_starts_nothing_while_a_host_that_has_not_come_back_may_run_it(tmp_path: Path, lost: str) -> None:
    """The lead dies and h1 is cut off: whatever runs there ends itself within seconds, and until then is a copy."""
    before = make_hub(tmp_path)
    caller = join(before, "cpu", host="h1")
    join(before, "cpu", host="h2")
    if lost == "just before the lead":
        before.end(caller, "it fell silent")
    before.close()
    after = make_hub(tmp_path)
    join(after, "cpu", host="h2")
    assert not after.can_reach(["h2/cpu:0"]), "the job may still run on h1"
    after.called_s -= after.times.clear_s
    assert after.can_reach(["h2/cpu:0"]), "by now all that was on h1 has ended"
    after.close()


def list_roll(folder: Path) -> set[str]:
    """The hosts on the roll of a home."""
    return {one.name for one in read_roll(folder) or ()}


def test_a_lead_that_dies_soon_leaves_the_roll_of_the_one_before_it(tmp_path: Path) -> None:
    """Within ten seconds three leads: the second one wrote the roll anew, and h1 was not on it yet."""
    before = make_hub(tmp_path)
    for host in ("h1", "h2"):
        join(before, "cpu", host=host)
    before.close()
    second = make_hub(tmp_path)
    join(second, "cpu", host="h2")
    second.close()
    assert list_roll(tmp_path) == {"h1", "h2"}
    third = make_hub(tmp_path)
    join(third, "cpu", host="h2")
    assert not third.can_reach(["h2/cpu:0"]), "the job may still run on h1"
    third.called_s -= third.times.meet_s
    third.tick(time.monotonic())
    assert list_roll(tmp_path) == {"h2"} and third.can_reach(["h2/cpu:0"])
    third.close()


def test_nothing_is_started_on_a_host_that_the_next_lead_would_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is full while the roll is written; were the lead lost, the next would start the job beside the first."""
    hub = make_hub(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail_without_room)
        caller = join(hub, "cpu")
        assert not hub.can_reach(["h1/cpu:0"])
    caller.connection.heard_s = hub.roll.due_s
    hub.tick(hub.roll.due_s)
    assert list_roll(tmp_path) == {"h1"} and hub.can_reach(["h1/cpu:0"])
    hub.close()


def fail_without_room(handle: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_lead_that_cannot_read_the_roll_waits_as_if_all_were_missing(tmp_path: Path) -> None:
    (tmp_path / ROLL).write_bytes(b"[{")
    hub = make_hub(tmp_path)
    join(hub, "cpu")
    assert not hub.can_reach(["h1/cpu:0"]), "the job may still run on whatever host was on it"
    hub.called_s -= hub.times.clear_s
    assert hub.can_reach(["h1/cpu:0"])
    hub.close()


@pytest.mark.parametrize("end", ["it hangs up", "its connection is reset", "it says what cannot be"])
def test_only_a_host_that_has_hung_up_has_ended_its_guests(tmp_path: Path, end: str) -> None:
    """A firewall resets a line towards the lead only: the host knows nothing of it, and its guests train on."""
    hub = make_hub(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = Caller(
            BeatingConnection(socket.create_connection(listener.getsockname())), "n", time.monotonic(), "h1"
        )
        host, _ = listener.accept()
    hub.callers.append(caller)
    hub.join(caller, Ready("ready", "127.0.0.1", (DeviceOffer("cpu:0", "cpu"),)))
    if end == "its connection is reset":
        host.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif end == "it says what cannot be":
        host.sendall(b"[]\n")
    else:
        host.shutdown(socket.SHUT_WR)
    if end != "it says what cannot be":
        host.close()
    while caller.connection.open:
        hub.read(caller)
    known = hub.hosts["h1"]
    assert known.caller is None
    sure_s = caller.connection.heard_s + hub.times.clear_s
    assert known.cleared_s < sure_s if end == "it hangs up" else known.cleared_s == sure_s
    host.close()
    hub.close()


def test_whoever_answers_a_byte_at_a_time_is_not_waited_for(tmp_path: Path) -> None:
    """Each byte came in time, so a host waited for hours, and a server with it."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            line, _ = listener.accept()
            with line, contextlib.suppress(OSError):
                while not over.wait(0.05):
                    line.sendall(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(TimeoutError):
                dial(LeadAddress("127.0.0.1", listener.getsockname()[1], "t"), "h1", 0.5)
        finally:
            over.set()
            thread.join()


def test_a_new_lead_to_which_all_hosts_have_come_back_starts_at_once(tmp_path: Path) -> None:
    before = make_hub(tmp_path)
    for host in ("h1", "h2"):
        join(before, "cpu", host=host)
    before.close()
    after = make_hub(tmp_path)
    for host in ("h1", "h2"):
        join(after, "cpu", host=host)
    assert after.can_reach(["h2/cpu:0"])
    after.close()


def test_hosts_that_were_lost_long_ago_are_forgotten_unless_a_job_waits_for_them(tmp_path: Path) -> None:
    """Pods have new names whenever they are scaled: what is known of old ones would only grow."""
    told: list[Event] = []
    hub = make_hub(tmp_path, told.append)
    lost = [join(hub, "cpu", host=host) for host in ("h1", "h2")]
    for caller in lost:
        hub.end(caller, "its connection ended")
    later_s = time.monotonic() + FORGET_S + hub.times.clear_s
    hub.forget_lost((), later_s)
    assert set(hub.hosts) == {"h1", "h2"}, "nobody else is here"
    join(hub, "cpu", host="h3")
    hub.forget_lost(("h2/cpu:0",), later_s - 60)
    assert set(hub.hosts) == {"h1", "h2", "h3"}, "it was not so long ago"
    hub.forget_lost(("h2/cpu:0",), later_s)
    assert set(hub.hosts) == {"h2", "h3"} and set(hub.devices) == {"h2/cpu:0", "h3/cpu:0"}
    assert [one.node for one in told if isinstance(one, NodeForgotten)] == ["h1"]
    for number in range(2 * MOST_REFUSED):
        stranger: Any = SimpleNamespace(host=f"pod-{number}", connection=SimpleNamespace(send=lambda message: None))
        hub.refuse(stranger, "another version")
    assert len(hub.refused) == MOST_REFUSED
    hub.close()


def test_a_host_that_was_lost_long_ago_is_not_expected_by_the_next_lead(tmp_path: Path) -> None:
    """It was on the roll, because its guests might still be there; the next lead started nothing and told its loss."""
    hub = make_hub(tmp_path)
    gone = join(hub, "cpu", host="gone")
    gone.connection.has_hung_up = True
    hub.end(gone, "its pod was scaled down")
    stays = join(hub, "cpu", host="stays")
    assert list_roll(tmp_path) == {"gone", "stays"}, "its guests may still be there"
    wait_until(lambda: time.monotonic() > hub.hosts["gone"].cleared_s, lambda: "it is not yet cleared")
    stays.connection.heard_s = time.monotonic()
    hub.tick(time.monotonic())
    assert list_roll(tmp_path) == {"stays"}
    hub.close()
    later = make_hub(tmp_path)
    assert later.missing == {"stays"} and [node.name for node in later.list_nodes()] == ["stays"]
    later.close()


def test_a_host_tells_what_others_take_of_its_processors(tmp_path: Path) -> None:
    cluster = LoopbackCluster(tmp_path)
    try:
        cluster.start_host("a", "2")
        cluster.wait_for_hosts("a")
        wait_until(lambda: any(isinstance(one, MachineLoaded) for one in cluster.executor.events(0)), lambda: "no load")
        load = next(event for event in cluster.executor.events(0) if isinstance(event, MachineLoaded))
    finally:
        cluster.close()
    assert (load.machine, load.devices) == ("a", ("a/cpu:0", "a/cpu:1")) and load.slowdown >= 1.0
