"""What a platform takes of a machine: devices of one type, since a job may be given any of them."""

import logging

import pytest

from springtide.control.engines import site_devices
from springtide.executors.devices import Device

T4 = Device("gpu:0", "t4")
A100S = tuple(Device(f"gpu:{index}", "a100") for index in (1, 2))


def test_devices_of_another_type_are_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "springtide.control"):
        site = site_devices((T4, *A100S), nodes=2)
    assert (site.device_type, site.names) == ("a100", (("gpu:1",), ("gpu:2",)))
    assert "left out: gpu:0 (t4)" in caplog.text


def test_alike_devices_are_all_taken_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    assert site_devices(A100S).cluster.total == 2
    assert not caplog.records
