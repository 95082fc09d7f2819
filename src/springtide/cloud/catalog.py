"""The catalog: which GPU machines can be rented where, and what they cost.

The package ships its own dated tables (`data/`): machines (facts) and prices (facts of one day), each with its source.
An empty cell is unknown and stays so. A user's own catalog is one flat CSV in the same words. Nothing is chosen here.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from math import isfinite
from pathlib import Path

from springtide.errors import CatalogError
from springtide.throughput.tables.csv_rows import read_rows

DATA = Path(__file__).parent / "data"
REQUIRED = ("cloud", "region", "instance_type", "device_type", "devices", "on_demand_usd_per_h")
OPTIONAL = ("spot_usd_per_h", "device_memory_gib", "network_gbps", "rdma", "source", "date")
OLD_AFTER_DAYS = 30
# Public catalogs carry a tenth (AWS) and 0.11 or all (Azure) of the on-demand price where no spot price is known.
PLACEHOLDER_RATIOS = (0.1, 0.11, 1.0)
PLACEHOLDER_TOLERANCE = 0.0005
# What drivers write into a product name beside the type: the maker, the form, the kind of memory.
_BESIDE_THE_TYPE = re.compile(r"nvidia|tesla|amd|sxm\d?|pcie|hbm\d?e?")


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance type in a region, with its prices per hour; None is unknown."""

    cloud: str
    region: str
    instance_type: str
    device_type: str
    devices: float  # below 1 for a slice of a GPU
    on_demand_usd_per_h: float | None
    spot_usd_per_h: float | None
    device_memory_gib: float | None = None
    network_gbps: float | None = None
    rdma: str = ""
    source: str = ""
    priced_on: date | None = None
    spot_is_traded: bool = False  # the spot price was seen in a market, not read from a catalog

    @property
    def trusted_spot_usd_per_h(self) -> float | None:
        """The spot price, unless it is the placeholder that public catalogs use."""
        if self.spot_usd_per_h is None or self.spot_is_traded or not self.on_demand_usd_per_h:
            return self.spot_usd_per_h
        ratio = self.spot_usd_per_h / self.on_demand_usd_per_h
        suspicious = any(abs(ratio - known) < PLACEHOLDER_TOLERANCE for known in PLACEHOLDER_RATIOS)
        return None if suspicious else self.spot_usd_per_h

    @property
    def keys(self) -> tuple[str, ...]:
        """The normalised names under which its speed may be known: instance type, GPU, GPU with its memory."""
        names = [self.instance_type, self.device_type]
        if self.device_memory_gib is not None:
            names.append(f"{self.device_type} {self.device_memory_gib:.0f}GB")
        return tuple(map(normalise, names))


@dataclass(frozen=True, slots=True)
class Catalog:
    """Machines in a fixed order, and where they came from."""

    machines: tuple[Machine, ...]
    origin: str

    @property
    def oldest(self) -> date | None:
        """The day of the oldest price."""
        return min((machine.priced_on for machine in self.machines if machine.priced_on), default=None)

    def describe_age(self, today: date) -> str:
        """How old the prices are, in words."""
        if self.oldest is None:
            return f"prices from {self.origin}, undated"
        days = (today - self.oldest).days
        return f"prices from {self.origin}, {days} days old ({self.oldest.isoformat()})"

    def is_old(self, today: date, most_days: int = OLD_AFTER_DAYS) -> bool:
        """Whether any price is undated or older than so many days."""
        return self.oldest is None or (today - self.oldest).days > most_days

    def narrow(self, clouds: Sequence[str] = (), regions: Sequence[str] = (), types: Sequence[str] = ()) -> "Catalog":
        """The machines of these clouds, regions and instance or device types; each must exist."""
        kept = self.machines
        kept = _keep(kept, "cloud", clouds, lambda machine: (machine.cloud,))
        kept = _keep(kept, "region", regions, lambda machine: (machine.region,))
        kept = _keep(kept, "type", types, lambda machine: (machine.instance_type, machine.device_type))
        return Catalog(kept, self.origin)


@cache
def normalise(name: str) -> str:
    """A device type's name as it is compared: `A100-80GB`, `a100_80gb` and `NVIDIA A100-SXM4-80GB` are the same."""
    return "".join(word for word in re.findall("[a-z0-9]+", name.lower()) if not _BESIDE_THE_TYPE.fullmatch(word))


def read_catalog(path: Path | None = None) -> Catalog:
    """A user's own catalog, or (None) the one in the package."""
    if path is not None:
        return Catalog(tuple(_read_flat(path)), str(path))
    return Catalog(tuple(_read_packaged()), "the packaged catalog")


def _read_packaged() -> Iterable[Machine]:
    facts = {
        (row["cloud"], row["instance_type"]): (where, row)
        for where, row in read_rows(DATA / "machines.csv", error=CatalogError)
    }
    for where, price in read_rows(DATA / "prices.csv", error=CatalogError):
        _, fact = facts[price["cloud"], price["instance_type"]]
        yield make_machine(where, fact | price)


def _read_flat(path: Path) -> Iterable[Machine]:
    machines = [make_machine(where, row) for where, row in read_rows(path, REQUIRED, CatalogError, "catalog")]
    if not machines:
        raise CatalogError(f"catalog {path}: holds no machines; give at least one row under the header")
    return machines


def make_machine(where: str, row: Mapping[str, str]) -> Machine:
    """A machine from the cells of a row, or the rule that a cell breaks."""
    for name in ("cloud", "region", "instance_type", "device_type"):
        if not row.get(name):
            raise CatalogError(f"{where}: {name} is empty; every machine needs one")
    devices = read_amount(where, "devices", row.get("devices", ""))
    if devices is None:
        raise CatalogError(f"{where}: devices is empty; give the number of GPUs")

    def amount(name: str) -> float | None:
        return read_amount(where, name, row.get(name, ""))

    return Machine(
        row["cloud"],
        row["region"],
        row["instance_type"],
        row["device_type"],
        devices=devices,
        on_demand_usd_per_h=amount("on_demand_usd_per_h"),
        spot_usd_per_h=amount("spot_usd_per_h"),
        device_memory_gib=amount("device_memory_gib"),
        network_gbps=amount("network_gbps"),
        rdma=row.get("rdma", ""),
        source=row.get("source", ""),
        priced_on=_read_date(where, row.get("date", "")),
    )


def read_amount(where: str, name: str, text: str) -> float | None:
    """A positive number, or None where the cell is empty: unknown."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise CatalogError(f"{where}: {name} {text!r} is not a number; leave it empty if unknown") from None
    if not isfinite(value) or value <= 0:
        raise CatalogError(f"{where}: {name} {text!r} must be positive; leave it empty if unknown")
    return value


def _read_date(where: str, text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise CatalogError(f"{where}: date {text!r} must be written as 2026-08-22") from None


def _keep(
    machines: tuple[Machine, ...], what: str, wanted: Sequence[str], names: Callable[[Machine], tuple[str, ...]]
) -> tuple[Machine, ...]:
    if not wanted:
        return machines
    known = {normalise(name): name for machine in machines for name in names(machine)}
    for name in wanted:
        if normalise(name) not in known:
            some = ", ".join(sorted(known.values())[:40])
            raise CatalogError(f"{what} {name!r} is not in the catalog; there are {some}")
    keys = {normalise(name) for name in wanted}
    return tuple(machine for machine in machines if keys.intersection(map(normalise, names(machine))))
