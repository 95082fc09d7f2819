"""Where jobs run: this machine, a Ray cluster, or nowhere (`fake`), behind the one protocol of `executors`."""

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from springtide.control.scheduling.machines.inventory import Inventory, join_inventories, make_inventory, name_inventory
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.storage.state_dir import StateDir
from springtide.core.sizes import parse_size
from springtide.errors import InputError
from springtide.executors.hosts.lead_address import HOSTS
from springtide.executors.local.discovery import Device, make_cpu_slots, parse_slots
from springtide.executors.protocol import Executor

if TYPE_CHECKING:
    from springtide.executors.local.jobs.attempt import AttemptOptions

NAMES = ("local", "ray", "fake")


@dataclass(frozen=True, slots=True)
class ExecutorHandle:
    """An executor, its devices, and how to end everything it started."""

    executor: Executor
    inventory: Inventory
    close: Callable[[], None]
    #: Names the sequence of the executor's events: that of another name begins anew at 1. Empty: there is one only.
    stream: str = ""
    #: Whether its processes are on several hosts, so that one that was cut off may go on beside its successor.
    several_hosts: bool = False


def open_executor(
    name: str,
    state_dir: StateDir,
    devices: str | None,
    nodes: int = 1,
    address: str = "auto",
    limits: "AttemptOptions | None" = None,
) -> ExecutorHandle:
    """The engine of this name; `devices` are the CPU slots where there is no GPU, a number or numbers by type.

    The devices of each type are cut into so many nodes; those of a cluster are the executor's own, found at an address.
    An agent of this machine that is started has the limits; one that runs already keeps its own.
    """
    if name == "fake":
        from springtide.executors.fake import RealTimeFake

        slots = [
            Device(f"{device_type}:{k}", device_type)
            for k, device_type in enumerate(parse_slots(devices or "2", "fake"))
        ]
        executor = RealTimeFake(devices=[slot.name for slot in slots])
        return ExecutorHandle(executor, list_inventory(slots, nodes), lambda: None, f"fake:{secrets.token_hex(8)}")
    if name == "ray":
        return open_ray(state_dir, devices, address)
    if name != "local":
        raise InputError(f"unknown engine {name!r}; there are: {', '.join(NAMES)}")
    from springtide.executors.local.executor import LocalExecutor

    if (state_dir.root / HOSTS).exists():
        raise InputError(
            f"{state_dir.root} is the home of a cluster, and this machine alone is not it; start its server with: "
            "springtide serve --engine ray, or name another home in SPRINGTIDE_HOME"
        )
    if devices is not None:
        make_cpu_slots(devices)  # refused here, not in the log of an agent that does not start
    local = LocalExecutor(state_dir.root, devices, options=limits)
    stream = f"local:{state_dir.identify()}"
    return ExecutorHandle(local, list_inventory(local.devices(), nodes), local.shutdown, stream)


def choose_limits(options: ServerOptions) -> "AttemptOptions":
    """The agent's times and limits, as the owner of the server sets them."""
    from springtide.executors.local.jobs.attempt import AttemptOptions
    from springtide.executors.local.jobs.hangs import Patience
    from springtide.executors.local.processes.cgroups import GroupLimits
    from springtide.executors.local.processes.fork_servers import ForkBudget

    idle_s = options.idle_patience_s
    return AttemptOptions(
        patience=Patience(idle_s=idle_s, silent_s=max(idle_s, Patience().silent_s)),
        limits=GroupLimits(pids=options.most_processes),
        forks=ForkBudget(options.warm_s, options.warm_servers, parse_size(options.warm_memory, "warm_memory")),
    )


def check_memory_limit(most: str) -> None:
    """Refuse a limit on the memory of jobs that this machine cannot hold them to, by trying it."""
    from springtide.executors.local.processes.cgroups import GroupLimits, open_groups

    groups = open_groups(f"trial-{os.getpid()}", GroupLimits())
    try:
        if groups is None or not groups.limits_memory:
            raise InputError(
                f"server.yaml: most_memory is {most}, and jobs cannot be held to it here: the memory controller of "
                f"cgroup v2 is not ours to use; run the server under systemd with Delegate=yes, as in deploy/systemd, "
                f"or take the key out"
            )
    finally:
        if groups is not None:
            groups.close()


def open_ray(state_dir: StateDir, devices: str | None, address: str) -> ExecutorHandle:
    """A Ray cluster."""
    from springtide.executors.ray.ray_executor import RayExecutor

    if devices is not None:
        make_cpu_slots(devices)
    executor = RayExecutor(state_dir.root, address, devices, state_dir.storage or "")
    stream = f"ray:{state_dir.identify()}"
    return ExecutorHandle(executor, name_inventory(executor.nodes()), executor.shutdown, stream, several_hosts=True)


def list_inventory(found: Sequence[Device], nodes: int = 1) -> Inventory:
    """The inventory of a machine's devices; those of each type are nodes of their own."""
    names: dict[str, list[str]] = {}
    for device in found:
        names.setdefault(device.type, []).append(device.name)
    return join_inventories([make_inventory(device_type, devices, nodes) for device_type, devices in names.items()])
