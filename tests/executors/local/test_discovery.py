"""Discovery reads recorded outputs of nvidia-smi, and falls back to CPU slots."""

from collections.abc import Sequence

import pytest

from springtide.core.devices import parse_cluster
from springtide.errors import InputError
from springtide.executors.local.discovery import (
    APPS,
    LIST,
    QUERY,
    Ask,
    choose_kernels,
    choose_visible,
    count_cores,
    discover,
)

UUIDS = [f"GPU-5b7c3f0{index}-8a1e-4d57-9f1b-0c2d4e6f8a1{index}" for index in range(8)]
A100S = "".join(f"{index}, {uuid}, NVIDIA A100-SXM4-40GB, 40960, Disabled\n" for index, uuid in enumerate(UUIDS))
A100_LIST = "".join(f"GPU {index}: NVIDIA A100-SXM4-40GB (UUID: {uuid})\n" for index, uuid in enumerate(UUIDS))
MIG = f"0, {UUIDS[0]}, NVIDIA A100-PCIE-40GB, 40960, Enabled\n1, {UUIDS[1]}, NVIDIA A100-PCIE-40GB, 40960, Disabled\n"
MIG_LIST = f"""GPU 0: NVIDIA A100-PCIE-40GB (UUID: {UUIDS[0]})
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)
  MIG 1g.5gb+me   Device  1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)
GPU 1: NVIDIA A100-PCIE-40GB (UUID: {UUIDS[1]})
"""
NO_DRIVER = (
    "nvidia-smi ended with code 9: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)


def answer(query: str = "", listing: str = "", apps: str = "", problem: str = "") -> Ask:
    """An nvidia-smi that says this."""

    def ask(arguments: Sequence[str]) -> tuple[str, str]:
        return {QUERY: query, LIST: listing, APPS: apps}[tuple(arguments)], problem

    return ask


def test_eight_a100s() -> None:
    found = discover(ask=answer(A100S, A100_LIST))
    assert [device.name for device in found.devices] == [f"gpu:{index}" for index in range(8)]
    assert {device.type for device in found.devices} == {"a100-sxm4-40gb"}
    assert {device.memory_gib for device in found.devices} == {40.0}
    assert found.notes == ()
    assert choose_visible(found.devices[2:4]) == {"CUDA_VISIBLE_DEVICES": f"{UUIDS[2]},{UUIDS[3]}"}


def test_mig_slices_stand_for_their_gpu() -> None:
    devices = discover(ask=answer(MIG, MIG_LIST)).devices
    assert [(device.name, device.type, device.memory_gib) for device in devices] == [
        ("gpu:0.0", "a100-pcie-40gb-3g.20gb", 20.0),
        ("gpu:0.1", "a100-pcie-40gb-1g.5gb-me", 5.0),
        ("gpu:1", "a100-pcie-40gb", 40.0),
    ]
    assert choose_visible(devices[:1]) == {"CUDA_VISIBLE_DEVICES": "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"}


def test_cpu_slots_can_be_of_several_types_which_differ_in_their_kernels() -> None:
    devices = discover("2:cpu,1:cpu-sse41", ask=answer(problem=NO_DRIVER)).devices
    assert [(device.name, device.type) for device in devices] == [
        ("cpu:0", "cpu"),
        ("cpu:1", "cpu"),
        ("cpu:2", "cpu-sse41"),
    ]
    assert choose_kernels(devices[0]) == {}
    assert choose_kernels(devices[2])["ONEDNN_MAX_CPU_ISA"] == "SSE41"


@pytest.mark.parametrize("text", ["0", "x", "2:", "1:gpu", "1,", "-1", "2:cpu 1:cpu-sse41"])
def test_what_is_no_number_of_slots_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="devices"):
        discover(text, ask=answer(problem=NO_DRIVER))


def test_a_busy_gpu_is_named() -> None:
    found = discover(ask=answer(A100S, A100_LIST, apps=f"{UUIDS[3]}, 4711, 31022\n{UUIDS[3]}, 4712, [N/A]\n"))
    assert [device.name for device in found.devices if device.is_busy] == ["gpu:3"]
    assert found.notes == ("gpu:3 is in use by process 4711, 4712",)


def test_a_missing_driver_is_said_and_cpu_slots_serve() -> None:
    found = discover(cpu_slots="3", ask=answer(problem=NO_DRIVER))
    assert [device.name for device in found.devices] == ["cpu:0", "cpu:1", "cpu:2"]
    assert found.notes == (NO_DRIVER,)


def test_no_tool_means_one_slot_per_core_and_hidden_gpus() -> None:
    found = discover(ask=answer())
    assert len(found.devices) == count_cores()
    assert choose_visible(found.devices) == {"CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize("recorded", [answer(A100S, A100_LIST), answer(MIG, MIG_LIST), answer()])
def test_types_are_words_of_a_cluster(recorded: Ask) -> None:
    for device in discover(ask=recorded).devices:
        assert parse_cluster(f"1x1:{device.type}").device_types == (device.type,)


def test_this_machine_has_devices() -> None:
    assert discover().devices
