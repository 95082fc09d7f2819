"""The one process of ours that speaks with Ray: it keeps an actor, and by it the agent of a host, on every node.

`python -m springtide.executors.ray.ray_keeper --address ADDRESS --home DIR` prints one JSON line when it is connected
(or why it is not), reads `go` from its standard input, and then prints what it knows of each host, when that changes
and every few seconds. It ends with its standard input; the hosts stay. A process of its own, because Ray may hang or
end whoever uses it.
"""

import argparse
import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ray as untyped_ray
from ray._private.state import state as cluster_state
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from springtide.executors.hosts.host_roll import read_roll
from springtide.executors.hosts.lead_address import read_lead
from springtide.executors.local.paths import make_mark
from springtide.executors.ray.host_actor import HostActor, survey_host
from springtide.executors.ray.name_book import read_book, write_book
from springtide.executors.ray.ray_nodes import (
    RayNode,
    check_membership,
    choose_nodes,
    name_actor,
    name_hosts,
    read_actors,
)

ray: Any = untyped_ray
LOOK_S = 1.0
#: How long an actor may take to start its host's agent, or to answer.
ANSWER_S = 30.0
#: How often the agent of a host is looked at.
CHECK_S = 5.0
#: How often something is printed at least.
PRINT_S = 5.0


@dataclass
class KeptHost:
    """A node with our actor on it."""

    node: RayNode
    name: str
    actor: Any
    asked: Any = None
    asked_s: float = 0.0
    said: dict[str, Any] = field(default_factory=dict)
    noticed: bool = False
    #: Whether the actor could not begin, or has ended: another is made when it is asked next.
    is_dead: bool = False


class RayKeeper:
    """The actors of one home."""

    def __init__(self, home: Path, devices: str | None, sends_address: bool = False) -> None:
        self.home = home
        self.devices = devices
        #: Whether hosts are told by Ray where the lead is, because they may not see the home.
        self.sends_address = sends_address
        self.hosts: dict[str, KeptHost] = {}
        self.printed, self.printed_s = "", 0.0
        self.own_node = ray.get_runtime_context().get_node_id()

    def look(self) -> None:
        """Have an actor on every node that can work for us, and hear what each says."""
        rows = ray.nodes()
        check_membership(rows, self.own_node)
        nodes = {node.id: node for node in choose_nodes(rows, self.devices)}
        self.hosts = {key: host for key, host in self.hosts.items() if key in nodes}
        if nodes.keys() - self.hosts.keys():
            self.make_hosts(nodes)
        self.give_notices()
        for host in self.hosts.values():
            self.hear(host)
        self.print_hosts()

    def make_hosts(self, nodes: Mapping[str, RayNode]) -> None:
        """Have an actor on every node, under the name that its machine had."""
        names = find_names(self.home, list(nodes.values()))
        write_book(self.home, {names[key]: node.address for key, node in nodes.items()})
        for key in [key for key in nodes if key not in self.hosts]:
            self.hosts[key] = self.make_host(nodes[key], names[key])

    def make_host(self, node: RayNode, name: str) -> KeptHost:
        """A node with an actor on it."""
        return KeptHost(node, name, self.make_actor(node, name))

    def make_actor(self, node: RayNode, name: str) -> Any:
        """The actor on a node, made if there is none."""
        options = ray.remote(HostActor).options(
            name=name_actor(node.id, name),
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        return options.remote(name, str(self.home), node.cpu_slots, node.id)

    def hear(self, host: KeptHost) -> None:
        """Take an answer that has come, and ask again when it is time; a silent actor is replaced."""
        now_s = time.monotonic()
        if host.asked is not None:
            ready, _ = ray.wait([host.asked], timeout=0)
            if ready:
                self.take(host)
            elif now_s - host.asked_s > ANSWER_S:
                host.said = {"up": False, "said": f"no answer within {ANSWER_S:g} s"}
                host.asked = None
        elif now_s - host.asked_s >= CHECK_S or not host.said:
            if host.is_dead:
                host.actor, host.is_dead = self.make_actor(host.node, host.name), False
            lead = asdict(read_lead(self.home)) if self.sends_address else None
            host.asked, host.asked_s = host.actor.look.remote(lead), now_s

    def take(self, host: KeptHost) -> None:
        """Take an actor's answer; what one died of stays told until another has answered."""
        try:
            host.said = ray.get(host.asked)
        except Exception as error:  # whatever its process met: no springtide there, no disk, no memory
            host.said, host.is_dead = {"up": False, "said": explain(error)}, True
        host.asked = None

    def give_notices(self) -> None:
        """Tell the hosts of nodes that Ray drains that they are about to go."""
        draining: Any = {}
        with contextlib.suppress(Exception):  # Ray's own, and not for all to use
            draining = cluster_state.get_draining_nodes()
        for key, host in self.hosts.items():
            if key in draining and not host.noticed:
                host.noticed = True
                host.actor.give_notice.remote()

    def print_hosts(self) -> None:
        """Print what is known, if it has changed, and now and then: silence means that Ray does not answer."""
        known = {host.name: {"address": host.node.address, **host.said} for host in self.hosts.values()}
        text = json.dumps({"hosts": known})
        if text != self.printed or time.monotonic() - self.printed_s >= PRINT_S:
            self.printed, self.printed_s = text, time.monotonic()
            print(text, flush=True)

    def kill(self, name: str) -> None:
        """End the agent of a host at once, as a fault would; the next look starts it again."""
        for host in self.hosts.values():
            if host.name == name:
                host.actor.kill_agent.remote()

    def dismiss(self) -> None:
        """End the actors; their hosts' agents end with their lead."""
        for host in self.hosts.values():
            with contextlib.suppress(Exception):
                ray.kill(host.actor)


def find_names(home: Path, nodes: Sequence[RayNode]) -> dict[str, str]:
    """The names of hosts by node, as their actors, the lead's roll and the book of a home have them."""
    roll = {entry.name: entry.address for entry in read_roll(home) or ()}
    named = read_actors(ray.util.list_named_actors())
    return name_hosts(nodes, named, {**roll, **read_book(home)}, roll)


def look_around(nodes: Sequence[RayNode], names: Mapping[str, str], witness: str) -> dict[str, Any]:
    """What each host has, or the error that it met."""
    asked = {
        names[node.id]: ray.remote(survey_host)
        .options(num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False))
        .remote(witness, node.cpu_slots)
        for node in nodes
    }
    found: dict[str, Any] = {}
    for name, answer in asked.items():
        try:
            found[name] = ray.get(answer, timeout=ANSWER_S)
        except Exception as error:  # as in `take`
            found[name] = {"error": explain(error)}
    return found


def explain(error: BaseException) -> str:
    """The line of an error that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "rror:" in line]
    return (telling or lines or [type(error).__name__])[-1][:500]


def connect(address: str, home: Path) -> dict[str, Any]:
    """Join Ray's cluster; what to print about it."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray.init(address=address, namespace=f"springtide-{make_mark(home)}", log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # of many types, and a version of Ray that is not the cluster's is a RuntimeError
        return {"error": explain_connection(error, address)}
    own, head = ray.util.get_node_ip_address(), ray.get_runtime_context().gcs_address
    python = ".".join(map(str, sys.version_info[:3]))
    return {"address": own, "head": head, "ray": ray.__version__, "python": python}


def explain_connection(error: BaseException, address: str) -> str:
    """Why Ray's cluster cannot be joined, and what to do."""
    text = " ".join(str(error).split())
    if "Version mismatch" in text:
        return f"{text[text.index('Version mismatch') :][:400]}; install what the cluster has: pip install 'ray==...'"
    if "uthenticat" in text or "token" in text.lower():
        return f"Ray at {address} does not let us in ({text[:200]}); set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
    return (
        f"Ray at {address} does not let us in ({text[:200]}); if the cluster has a token, set RAY_AUTH_MODE=token and "
        "RAY_AUTH_TOKEN to it; if it is encrypted, RAY_USE_TLS and the RAY_TLS_ variables; and have a raylet of it on "
        "this machine: springtide join HEAD:PORT, or ray start"
    )


def main() -> None:
    """Keep hosts until the standard input ends."""
    parser = argparse.ArgumentParser(description="Keep the agent of a host on every node of a Ray cluster.")
    parser.add_argument("--address", required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--devices")
    parser.add_argument("--send-address", action="store_true", help="tell hosts where the lead is, and the token")
    parser.add_argument("--survey", metavar="FILE", help="only say what each host has, and what it reads in this file")
    given = parser.parse_args()
    said = connect(given.address, given.home)
    rows = ray.nodes() if "error" not in said else []
    nodes = [{"id": node.id, "hostname": node.hostname} for node in choose_nodes(rows, given.devices)]
    print(json.dumps({**said, "nodes": nodes}), flush=True)
    if "error" in said or sys.stdin.readline().strip() != "go":
        sys.exit(1 if "error" in said else 0)
    if given.survey is not None:
        every = choose_nodes(rows, None)
        found = look_around(every, find_names(given.home, every), given.survey)
        print(json.dumps({"hosts": found}), flush=True)
        return
    keeper = RayKeeper(given.home, given.devices, given.send_address)
    while True:
        if not select.select([sys.stdin], [], [], LOOK_S)[0]:
            keeper.look()
            continue
        word, _, name = sys.stdin.readline().strip().partition(" ")
        if word == "kill":
            keeper.kill(name)
        else:
            if word == "dismiss":
                keeper.dismiss()
            return


if __name__ == "__main__":
    main()
