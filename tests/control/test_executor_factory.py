"""What a platform takes of a machine: all its devices, those of each type as nodes of their own."""

from pathlib import Path

import pytest

from springtide.control.executor_factory import list_inventory, open_executor
from springtide.control.storage.state_dir import StateDir
from springtide.errors import InputError
from springtide.executors.local.discovery import Device

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
