"""A small made-up cloud: three GPU types in two regions, with points that make each sometimes the best."""

from datetime import date

from tests.throughput.made_up_points import make_points

from springtide.cloud.catalog import Catalog, Machine
from springtide.cloud.step_times import Speed, measure_speeds

DAY = date(2026, 11, 1)
GPUS = {"slow": (1.0, 0.5), "middle": (2.5, 1.4), "fast": (6.0, 4.1)}  # speed, $ per GPU-hour


def make_machine(
    gpu: str, devices: int, region: str = "east", factor: float = 1.0, spot: float | None = 0.4
) -> Machine:
    """A machine with so many GPUs of a kind, its price scaled by a factor."""
    price = GPUS[gpu][1] * devices * factor
    spot_price = None if spot is None else price * spot
    return Machine("aws", region, f"{gpu}.{devices}", gpu, devices, price, spot_price, 16.0, 25.0, priced_on=DAY)


def make_catalog() -> Catalog:
    """Nodes of one and four GPUs of each kind; the west is a little dearer, and knows no spot for the fast ones."""
    machines = [make_machine(gpu, devices) for gpu in GPUS for devices in (1, 4)]
    west = [
        make_machine(gpu, devices, "west", 1.1, None if gpu == "fast" else 0.3) for gpu in GPUS for devices in (1, 4)
    ]
    return Catalog((*machines, *west), "a made-up catalog")


def make_speeds(*gpus: str) -> dict[str, Speed]:
    """The speeds of some of the GPUs, or of all."""
    points = [point for gpu in gpus or GPUS for point in make_points("net", gpu, speed=GPUS[gpu][0])]
    return measure_speeds(points, [], "net")
