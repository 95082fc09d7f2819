"""What a platform takes of a machine: all its devices, those of each type as nodes of their own."""

import json
from pathlib import Path

import psutil
import pytest

from springtide.control.executor_factory import choose_limits, list_inventory, open_executor
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.storage.state_dir import StateDir
from springtide.errors import InputError
from springtide.executors.local.discovery import Device
from springtide.executors.local.executor import LocalExecutor
from springtide.executors.local.jobs.attempt import AttemptOptions
from springtide.executors.local.processes.fork_servers import ForkBudget

T4 = Device("gpu:0", "t4")
A100S = tuple(Device(f"gpu:{index}", "a100") for index in (1, 2))


def test_each_type_has_nodes_of_its_own() -> None:
    site = list_inventory((T4, *A100S))
    assert site.names == (("gpu:0",), ("gpu:1", "gpu:2"))
    assert site.cluster.describe() == "1x1:t4,1x2:a100"
    assert site.count_types(["gpu:2", "gpu:0", "gpu:1"]) == {"a100": 2, "t4": 1}


def test_devices_of_one_type_are_cut_into_nodes() -> None:
    site = list_inventory(A100S, nodes=2)
    assert site.names == (("gpu:1",), ("gpu:2",))
    assert not site.is_mixed


def test_a_drained_type_stays_known_but_takes_no_work() -> None:
    site = list_inventory((T4, *A100S))
    drained = type(site)(site.names, site.types, frozenset({"node-0"}))
    assert drained.cluster.device_types == ("a100",)
    assert drained.totals == {"t4": 1, "a100": 2}
    assert drained.is_mixed


def test_an_engine_that_runs_nothing_has_devices_of_any_type(tmp_path: Path) -> None:
    assert open_executor("fake", StateDir(tmp_path), "2:a100,1:t4").inventory.totals == {"a100": 2, "t4": 1}


def test_slots_that_cannot_be_are_refused_before_an_agent_is_started(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only cpu, cpu-sse41"):
        open_executor("local", StateDir(tmp_path), "2:a100")
    assert not any(tmp_path.iterdir())


def test_the_limits_of_an_agent_are_the_owners() -> None:
    assert choose_limits(ServerOptions()) == AttemptOptions()
    options = ServerOptions(
        most_processes=500, idle_patience_s=2000.0, warm_servers=0, warm_s=5.0, warm_memory="64 MiB"
    )
    limits = choose_limits(options)
    assert limits.limits.pids == 500 and limits.forks == ForkBudget(5.0, 0, 64 << 20)
    assert (limits.patience.idle_s, limits.patience.silent_s) == (2000.0, 2000.0)


def test_an_agent_is_started_with_the_limits(tmp_path: Path) -> None:
    limits = AttemptOptions(forks=ForkBudget(idle_servers=1))
    handle = open_executor("local", StateDir(tmp_path).make(), "1", limits=limits)
    try:
        assert isinstance(handle.executor, LocalExecutor)
        command = psutil.Process(handle.executor.hello()["pid"]).cmdline()
        assert json.loads(command[command.index("--options") + 1])["forks"]["idle_servers"] == 1
    finally:
        handle.close()
