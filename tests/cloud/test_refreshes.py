"""Refreshing prices, against recorded answers of the two public catalogs."""

from datetime import date
from pathlib import Path

import pytest

from springtide.cloud.catalog import read_catalog
from springtide.cloud.refreshes import refresh, write_catalog
from springtide.errors import CatalogError

TODAY = date(2026, 11, 15)
SKYPILOT = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region,AvailabilityZone
p4d.24xlarge,A100,8.0,96.0,1152.0,21.9,9.9,us-east-1,us-east-1a
p4d.24xlarge,A100,8.0,96.0,1152.0,21.9,8.8,us-east-1,us-east-1b
g5.xlarge,A10G,1.0,4.0,16.0,1.0,,us-east-2,us-east-2a
m5.large,,,2.0,8.0,0.1,0.03,us-east-1,us-east-1a
"""
GPUHUNT = """instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot
p4d.24xlarge,us-east-1,22.5,96,1152,8,A100,40,False
p4d.24xlarge,us-east-1,7.5,96,1152,8,A100,40,True
"""


@pytest.mark.parametrize(
    ("source", "text", "prices"), [("skypilot", SKYPILOT, (21.9, 8.8)), ("gpuhunt", GPUHUNT, (22.5, 7.5))]
)
def test_prices_are_taken_from_the_answer(source: str, text: str, prices: tuple[float, float]) -> None:
    def fetch(address: str) -> str:
        return text if "aws" in address.replace("amazonaws", "") else text.splitlines()[0] + "\n"

    fresh = refresh(read_catalog(), source, TODAY, fetch)
    machine = next(machine for machine in fresh.machines if machine.instance_type == "p4d.24xlarge")
    assert (machine.on_demand_usd_per_h, machine.spot_usd_per_h) == prices
    assert (machine.priced_on, machine.source, machine.network_gbps) == (TODAY, source, 400)
    assert "m5.large" not in {machine.instance_type for machine in fresh.machines}


def test_a_refreshed_catalog_survives_writing(tmp_path: Path) -> None:
    fresh = refresh(read_catalog(), "skypilot", TODAY, lambda address: SKYPILOT)
    path = tmp_path / "fresh.csv"
    path.write_text(write_catalog(fresh), encoding="utf-8")
    assert read_catalog(path).machines == fresh.machines


def test_an_answer_of_another_layout_is_refused() -> None:
    with pytest.raises(CatalogError, match="has no column InstanceType, Region"):
        refresh(read_catalog(), "skypilot", TODAY, lambda address: "a,b\n1,2\n")


def test_an_answer_without_our_machines_is_refused() -> None:
    with pytest.raises(CatalogError, match="gave no price of any known machine"):
        refresh(read_catalog(), "skypilot", TODAY, lambda address: SKYPILOT.splitlines()[0] + "\n")
    with pytest.raises(CatalogError, match="source 'ebay' is unknown"):
        refresh(read_catalog(), "ebay", TODAY, lambda address: "")
