"""A peer that goes is told apart from a mistake of the script, and a store listens only where it was told."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from torch.distributed.tensor import DTensor, Shard

from springtide.errors import PeerLostError
from springtide.training.group.groups import Group, connect_store, host_store, open_group
from springtide.training.sharding.meshes import MeshGroup, close_mesh, make_mesh

PEER = """
import sys, time
from springtide.training.group.groups import connect_store, open_group
group = open_group("gloo", connect_store(sys.argv[1], 30.0), 1, 2, "test", 30.0)
print("open", flush=True)
time.sleep(600)
"""


def gather_rows(group: Group) -> None:
    """What `fully_shard` does with a model's parameters."""
    MeshGroup(group, 0, 2).collect(torch.zeros(8), torch.zeros(4)).wait()


def read_whole(group: Group) -> None:
    """What a script does with a sharded tensor."""
    mesh = make_mesh(group, 0, "cpu")
    try:
        DTensor.from_local(torch.zeros(4), mesh, [Shard(0)]).full_tensor()
    finally:
        close_mesh(mesh)


@pytest.mark.parametrize(
    "collective",
    [
        lambda group: group.all_reduce(torch.zeros(4)).wait(),
        lambda group: group.gather_into(torch.zeros(8), torch.zeros(4)).wait(),
        gather_rows,
        read_whole,
    ],
    ids=["all_reduce", "gather_into", "fully_shard", "full_tensor"],
)
def test_a_collective_with_a_killed_peer_blames_the_peer(collective: Callable[[Group], None]) -> None:
    _store, address = host_store()
    peer = subprocess.Popen([sys.executable, "-c", PEER, address], stdout=subprocess.PIPE)
    group = open_group("gloo", connect_store(address, 30.0), 0, 2, "test", 30.0)
    assert peer.stdout is not None and peer.stdout.readline() == b"open\n"
    os.kill(peer.pid, signal.SIGKILL)
    peer.communicate()
    with pytest.raises(PeerLostError, match="another process of this run is gone"):
        collective(group)
    assert PeerLostError.exit_code == 75, "the agent knows it by this code"


STORE = "from springtide.training.group.groups import host_store; s = host_store(); print(s[1], flush=True); input()"


@pytest.mark.parametrize(
    "ask",
    [lambda store: store.check(["a"]), lambda store: store.get("a"), lambda store: store.add("a", 1)],
    ids=["check", "get", "add"],
)
def test_a_store_that_has_gone_blames_its_host(ask: Callable[[object], object]) -> None:
    holder = subprocess.Popen([sys.executable, "-c", STORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    store = connect_store(holder.stdout.readline().decode().strip(), 5.0)
    holder.kill()
    holder.communicate()
    with pytest.raises(PeerLostError, match="store"):
        ask(store)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
def test_a_store_listens_at_its_address_only() -> None:
    _store, address = host_store(address="127.0.0.1")
    port = int(address.rpartition(":")[2])
    listening = [line.laddr for line in psutil.Process().net_connections("tcp") if line.status == psutil.CONN_LISTEN]
    assert [place.ip for place in listening if place.port == port] == ["127.0.0.1"]
