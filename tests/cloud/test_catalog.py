"""The catalog: dated facts with a source, unknowns that stay unknown, and clear refusals."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from tests.cloud.made_up_cloud import make_machine

from springtide.cloud.catalog import Machine, normalise, read_catalog
from springtide.errors import CatalogError

HEADER = "cloud,region,instance_type,device_type,devices,on_demand_usd_per_h"
ROW = "mine,here,box,T4,2,1.5"


def write(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "catalog.csv"
    path.write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return path


def test_every_packaged_price_has_a_source_and_a_date() -> None:
    catalog = read_catalog()
    assert len(catalog.machines) > 300
    assert all(machine.source and machine.priced_on for machine in catalog.machines)
    assert {machine.cloud for machine in catalog.machines} == {"aws", "azure", "gcp"}


def test_networks_are_known_only_where_they_have_a_source() -> None:
    known = {machine.cloud for machine in read_catalog().machines if machine.network_gbps is not None}
    assert known == {"aws"}


def test_the_age_is_told() -> None:
    catalog = read_catalog()
    assert catalog.oldest == date(2026, 8, 22)
    assert "10 days old (2026-08-22)" in catalog.describe_age(date(2026, 9, 1))
    assert not catalog.is_old(date(2026, 9, 1))
    assert catalog.is_old(date(2026, 12, 1))


@pytest.mark.parametrize(("ratio", "trusted"), [(0.1, False), (0.11, False), (1.0, False), (0.35, True), (0.105, True)])
def test_placeholder_spot_prices_are_not_trusted(ratio: float, trusted: bool) -> None:
    machine = make_machine("slow", 4, spot=ratio)
    assert (machine.trusted_spot_usd_per_h is not None) is trusted


def test_an_unknown_spot_price_stays_unknown() -> None:
    assert replace(make_machine("slow", 4), spot_usd_per_h=None).trusted_spot_usd_per_h is None


def test_a_users_own_catalog(tmp_path: Path) -> None:
    (machine,) = read_catalog(write(tmp_path, ROW)).machines
    assert (machine.instance_type, machine.devices, machine.on_demand_usd_per_h) == ("box", 2, 1.5)
    assert machine.network_gbps is None


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("mine,here,box,T4,0,1.5", "devices '0' must be positive"),
        ("mine,here,box,T4,,1.5", "devices is empty"),
        ("mine,here,box,T4,2,cheap", "on_demand_usd_per_h 'cheap' is not a number"),
        ("mine,,box,T4,2,1", "region is empty"),
    ],
)
def test_a_bad_row_is_named_with_its_rule(tmp_path: Path, row: str, words: str) -> None:
    with pytest.raises(CatalogError) as error:
        read_catalog(write(tmp_path, ROW, row))
    assert "line 3" in str(error.value)
    assert words in str(error.value)


def test_missing_columns_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "mine,here", header="cloud,region")
    with pytest.raises(CatalogError, match="missing column instance_type, device_type, devices, on_demand_usd_per_h"):
        read_catalog(path)


@pytest.mark.parametrize("wrong", [{"clouds": ["ibm"]}, {"regions": ["mars-1"]}, {"types": ["T9000"]}])
def test_unknown_names_are_refused_with_the_known_ones(wrong: dict[str, list[str]]) -> None:
    with pytest.raises(CatalogError, match="is not in the catalog; there are"):
        read_catalog().narrow(**wrong)


def test_types_are_found_whatever_their_spelling() -> None:
    found = read_catalog().narrow(types=["a100_80gb"])
    assert {machine.device_type for machine in found.machines} == {"A100-80GB"}


@pytest.mark.parametrize(
    ("product", "device_type", "memory_gib", "same"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100", 40.0, True),
        ("a100-sxm4-80gb", "A100-80GB", 80.0, True),
        ("NVIDIA A100-SXM4-80GB", "A100", 40.0, False),
        ("Tesla V100-SXM2-16GB", "V100", 16.0, True),
        ("NVIDIA H100 80GB HBM3", "H100", 80.0, True),
        ("Tesla T4", "T4", None, True),
        ("NVIDIA L4", "L40S", 48.0, False),
    ],
)
def test_what_a_driver_calls_a_gpu_finds_its_machines(
    product: str, device_type: str, memory_gib: float | None, same: bool
) -> None:
    machine = Machine("aws", "here", "x.1", device_type, 1, 1.0, None, memory_gib)
    assert (normalise(product) in machine.keys) is same
