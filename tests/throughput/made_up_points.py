"""Made-up clusters: step times from a plain formula of our own, so that tests know the truth."""

from collections.abc import Sequence

from springtide.throughput.tables.points import Point, make_layout

BATCHES = (8, 16, 32, 64)
PLACES = ((1, 1), (1, 2), (1, 4), (2, 8), (4, 16), (8, 32))


def make_step_s(nodes: int, devices: int, batch: float, speed: float = 1.0) -> float:
    """Affine compute, a ring inside a node, a slower ring and a tree across nodes, nothing hidden."""
    compute_s = 0.02 + 0.002 * batch
    per_node = devices / nodes
    ring = 2 * (devices - 1) / devices
    sync_s = 0.004 * 2 * (per_node - 1) / per_node if nodes == 1 else 0.015 * ring + 0.003 * (nodes - 1).bit_length()
    return (compute_s + sync_s) / speed


def make_points(
    model: str = "net",
    device_type: str = "x100",
    places: Sequence[tuple[int, int]] = PLACES,
    batches: Sequence[float] = BATCHES,
    speed: float = 1.0,
) -> list[Point]:
    """A point at every place and batch."""
    return [
        Point(make_layout(model, device_type, nodes, devices, batch), make_step_s(nodes, devices, batch, speed))
        for nodes, devices in places
        for batch in batches
    ]
