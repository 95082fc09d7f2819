"""Fetches today's prices from SkyPilot's public catalog or from gpuhunt, in the packaged catalog's words.

Fetching is one function from an address to text, so that tests give recorded answers. Machines that our own table does
not know are left out: their network is unknown to us, and a price alone makes no plan.
"""

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from functools import lru_cache
from pathlib import Path

from springtide.cloud.catalog import OPTIONAL, REQUIRED, Catalog, Machine, read_amount, read_catalog
from springtide.errors import CatalogError

Fetch = Callable[[str], str]

SKYPILOT = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8/{cloud}/vms.csv"
GPUHUNT = "https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v1/{cloud}.csv"
CLOUDS = ("aws", "azure", "gcp")


def fetch_text(address: str) -> str:
    """The text at an address, or an error that names it and the remedy."""
    import httpx

    try:
        answer = httpx.get(address, timeout=60, follow_redirects=True)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise CatalogError(
            f"{address}: {error or type(error).__name__}; the packaged prices stay in use; "
            f"try again online, or give your own with --catalog FILE"
        ) from None
    return answer.text


def refresh(known: Catalog, source: str, today: date, fetch: Fetch = fetch_text) -> Catalog:
    """The known machines with today's prices; a machine that has none today is left out."""
    if source not in SOURCES:
        raise CatalogError(f"source {source!r} is unknown; there are {', '.join(SOURCES)}")
    address, parse = SOURCES[source]
    templates = {(machine.cloud, machine.instance_type): machine for machine in known.machines}
    machines = [
        replace(template, region=region, on_demand_usd_per_h=price, spot_usd_per_h=spot, source=source, priced_on=today)
        for cloud in CLOUDS
        for region, instance, price, spot in parse(address.format(cloud=cloud), fetch)
        if (template := templates.get((cloud, instance)))
    ]
    if not machines:
        raise CatalogError(f"source {source!r} gave no price of any known machine; the packaged prices stay in use")
    return Catalog(tuple(machines), f"{source}, {today.isoformat()}")


def _parse_skypilot(address: str, fetch: Fetch) -> Iterator[tuple[str, str, float | None, float | None]]:
    """Prices by region; of several zones the cheapest spot price counts."""
    cheapest: dict[tuple[str, str], tuple[float | None, float | None]] = {}
    for where, row in _read_text(address, fetch(address), ("InstanceType", "Region", "Price", "SpotPrice")):
        key = row["Region"], row["InstanceType"]
        price, spot = (read_amount(where, name, row[name]) for name in ("Price", "SpotPrice"))
        before = cheapest.get(key, (None, None))
        cheapest[key] = _least(before[0], price), _least(before[1], spot)
    for (region, instance), (price, spot) in cheapest.items():
        yield region, instance, price, spot


def _parse_gpuhunt(address: str, fetch: Fetch) -> Iterator[tuple[str, str, float | None, float | None]]:
    """Prices by region; gpuhunt lists spot and on-demand offers as rows of their own."""
    found: dict[tuple[str, str], list[float | None]] = {}
    for where, row in _read_text(address, fetch(address), ("instance_name", "location", "price", "spot")):
        prices = found.setdefault((row["location"], row["instance_name"]), [None, None])
        place = int(row["spot"].lower() == "true")
        prices[place] = _least(prices[place], read_amount(where, "price", row["price"]))
    for (region, instance), (price, spot) in found.items():
        yield region, instance, price, spot


SOURCES: Mapping[str, tuple[str, Callable[[str, Fetch], Iterable[tuple[str, str, float | None, float | None]]]]] = {
    "skypilot": (SKYPILOT, _parse_skypilot),
    "gpuhunt": (GPUHUNT, _parse_gpuhunt),
}


def _read_text(address: str, text: str, needed: tuple[str, ...]) -> list[tuple[str, dict[str, str]]]:
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in needed if name not in (reader.fieldnames or ())]
    if missing:
        raise CatalogError(f"{address}: the answer has no column {', '.join(missing)}; its layout must have changed")
    rows = ({name: (value or "").strip() for name, value in row.items() if name} for row in reader)
    return [(f"{address}, line {number}", row) for number, row in enumerate(rows, start=2)]


def _least(first: float | None, second: float | None) -> float | None:
    return min((value for value in (first, second) if value is not None), default=None)


def find_refreshed() -> Path:
    """Where a refreshed catalog is kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "springtide" / "catalog.csv"


def read_latest() -> Catalog:
    """The catalog that was refreshed last, or the one in the package; read once for as long as it does not change."""
    path = find_refreshed()
    return _read_version(path, path.stat().st_mtime_ns) if path.is_file() else _read_version(None, 0)


@lru_cache(maxsize=2)
def _read_version(path: Path | None, changed_ns: int) -> Catalog:
    return read_catalog(path)


def write_catalog(catalog: Catalog) -> str:
    """A catalog as the text of a flat CSV that `read_catalog` accepts."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*REQUIRED, *OPTIONAL))
    for machine in catalog.machines:
        writer.writerow(_write_machine(machine))
    return text.getvalue()


def _write_machine(machine: Machine) -> tuple[str, ...]:
    names = (machine.cloud, machine.region, machine.instance_type, machine.device_type)
    memory, network = machine.device_memory_gib, machine.network_gbps
    amounts = (machine.devices, machine.on_demand_usd_per_h, machine.spot_usd_per_h, memory, network)
    dated = machine.priced_on.isoformat() if machine.priced_on else ""
    return (
        *names,
        *("" if value is None else f"{value:.6g}" for value in amounts),
        machine.rdma,
        machine.source,
        dated,
    )
