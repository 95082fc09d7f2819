"""`springtide catalog`: list the GPU machines that can be rented, show one, refresh the prices.

Example:

  springtide catalog list --cloud aws --type A100,H100
"""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from springtide.cli.outputs import OUTPUT, OutputOption, print_table, tell
from springtide.errors import CatalogError

if TYPE_CHECKING:
    from springtide.cloud.catalog import Catalog, Machine

app = typer.Typer(rich_markup_mode="rich")

HEADINGS = ("cloud", "region", "machine", "GPU", "GPUs", "GiB", "Gbps", "RDMA", "$/h", "spot $/h")
LEGEND = (
    "GPUs: of one machine; GiB: memory of one GPU; Gbps: network; "
    "?: a placeholder of public catalogs, no price that was paid"
)
CATALOG = typer.Option(None, "--catalog", metavar="FILE", help="Your own catalog (CSV).")


@app.command("list")
def list_(
    cloud: str = typer.Option("", metavar="NAMES", help="Clouds, joined by commas."),
    region: str = typer.Option("", metavar="NAMES", help="Regions, joined by commas."),
    types: str = typer.Option("", "--type", metavar="NAMES", help="GPU or instance types, joined by commas."),
    catalog: Path = CATALOG,
    output: OutputOption = OUTPUT,
) -> None:
    """List machines with their GPUs, network and prices; an empty cell is unknown.

    Example:

      springtide catalog list --cloud aws --type A100,H100
    """
    found = load_catalog(catalog).narrow(split(cloud), split(region), split(types))
    _show(found, found.machines, output)


@app.command()
def show(
    instance_type: str = typer.Argument(help="An instance type, such as p4d.24xlarge."),
    catalog: Path = CATALOG,
    output: OutputOption = OUTPUT,
) -> None:
    """Show one machine in every region.

    Example:

      springtide catalog show p4d.24xlarge
    """
    found = load_catalog(catalog).narrow(types=[instance_type])
    _show(found, [m for m in found.machines if m.instance_type == instance_type] or found.machines, output)


@app.command()
def refresh(
    source: str = typer.Option("skypilot", metavar="NAME", help="skypilot or gpuhunt."),
    out: Path = typer.Option(None, metavar="FILE", help="Where to write it. Default: your cache, used from then on."),
    output: OutputOption = OUTPUT,
) -> None:
    """Fetch today's prices from a public catalog.

    Example:

      springtide catalog refresh --source skypilot
    """
    from springtide.cloud.catalog import read_catalog
    from springtide.cloud.refreshes import find_refreshed, write_catalog
    from springtide.cloud.refreshes import refresh as fetch

    target = out or find_refreshed()
    fresh = fetch(read_catalog(), source, date.today())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(write_catalog(fresh), encoding="utf-8")
    except OSError as error:
        raise CatalogError(f"cannot write {target}: {error.strerror}; give another with --out FILE") from None
    prices = describe_age(fresh)
    output.write({"schema": 1, "file": str(target), "prices": prices, "machines": len(fresh.machines)})
    tell(f"{len(fresh.machines)} prices from {fresh.origin} written to {target}")


def load_catalog(path: Path | None) -> "Catalog":
    """The catalog at a path, or the one refreshed last, or the packaged one."""
    from springtide.cloud.catalog import read_catalog
    from springtide.cloud.refreshes import read_latest

    return read_latest() if path is None else read_catalog(path)


def warn_age(catalog: "Catalog") -> None:
    """Print how old the prices are, as a warning if they are old."""
    today = date.today()
    warning = "warning: " if catalog.is_old(today) else ""
    remedy = "; update them with: springtide catalog refresh" if warning else ""
    tell(f"{warning}{catalog.describe_age(today)}{remedy}")


def split(text: str) -> list[str]:
    """The names in a list joined by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def describe_age(catalog: "Catalog") -> dict[str, Any]:
    """Where prices come from and how old they are, for JSON."""
    today = date.today()
    dated = catalog.oldest
    days = (today - dated).days if dated else None
    return {
        "origin": catalog.origin,
        "date": dated.isoformat() if dated else None,
        "age_days": days,
        "old": catalog.is_old(today),
    }


def _show(catalog: "Catalog", machines: Sequence["Machine"], output: OutputOption) -> None:
    warn_age(catalog)
    listed = [_describe(machine) for machine in machines]
    if not output.write({"schema": 1, "prices": describe_age(catalog), "machines": listed}):
        print_table(HEADINGS, map(_show_row, machines), legend=LEGEND)


def _show_row(machine: "Machine") -> tuple[str, ...]:
    spot = _show_amount(machine.spot_usd_per_h) + ("" if machine.trusted_spot_usd_per_h else "?")
    amounts = (machine.devices, machine.device_memory_gib, machine.network_gbps)
    names = (machine.cloud, machine.region, machine.instance_type, machine.device_type)
    price = _show_amount(machine.on_demand_usd_per_h)
    return (*names, *map(_show_amount, amounts), machine.rdma, price, spot if machine.spot_usd_per_h else "")


def _show_amount(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _describe(machine: "Machine") -> dict[str, Any]:
    from dataclasses import asdict

    fields = asdict(machine)
    fields["priced_on"] = machine.priced_on.isoformat() if machine.priced_on else None
    return fields | {"trusted_spot_usd_per_h": machine.trusted_spot_usd_per_h}
