"""The fleet as values that a template draws: nodes with their devices, and what is known of speeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from springtide.client.board_replies import BoardInfo
from springtide.client.replies import DeviceInfo
from springtide.dashboard.board_view import find_tone


@dataclass(frozen=True, slots=True)
class Cell:
    """A device and who holds it."""

    device: DeviceInfo
    tone: str


@dataclass(frozen=True, slots=True)
class NodeHolder:
    """A job with some devices of a node; `job` is empty where the reader may not see it."""

    job: str
    name: str
    count: int
    tone: str


@dataclass(frozen=True, slots=True)
class NodeCard:
    """A node."""

    name: str
    device_type: str
    state: str
    cells: list[Cell]
    #: Which part of the time its devices were held, since it is known.
    used: float
    #: What its devices cost in an hour; None where nothing has a price.
    usd_per_h: float | None
    holders: list[NodeHolder]

    @property
    def held(self) -> int:
        """How many of its devices are held."""
        return sum(cell.device.job_name is not None for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Code:
    """The speeds of some code on one device type."""

    names: list[str]
    device_type: str
    points: list[tuple[int, int, float]]

    @property
    def most(self) -> float:
        """The highest speed."""
        return max((rate for _, _, rate in self.points), default=1.0)


@dataclass(frozen=True, slots=True)
class FleetView:
    """All that the template draws."""

    nodes: list[NodeCard]
    codes: list[Code]
    board: BoardInfo
    #: Device-hours that jobs without a promise have had, in the board's past.
    lent_h: float
    span_s: float
    #: What all devices cost in an hour; None where nothing has a price.
    usd_per_h: float | None

    @property
    def lent(self) -> int:
        """How many devices jobs without a promise hold now."""
        return sum(cell.tone == "plain" for node in self.nodes for cell in node.cells)


def build_fleet(devices: Sequence[DeviceInfo], board: BoardInfo, speeds: Sequence[dict[str, Any]]) -> FleetView:
    """The fleet of the API's documents."""
    tones = {job.id: find_tone(job) for job in board.jobs}
    span_s = max(1e-9, board.now_s - board.devices.used_since_s)
    used: dict[str, float] = {}
    for lane in board.lanes:
        used[lane.node] = used.get(lane.node, 0.0) + sum(end_s - start_s for start_s, end_s, _, _ in lane.held)
    prices: dict[str, list[float]] = {}
    for lane in board.lanes:
        if lane.usd_per_h is not None:
            prices.setdefault(lane.node, []).append(lane.usd_per_h)
    names = list(dict.fromkeys(device.node for device in devices))
    nodes = []
    for name in names:
        some = [device for device in devices if device.node == name]
        cells = [Cell(one, find_cell_tone(one, tones)) for one in some]
        used_part = used.get(name, 0.0) / (span_s * len(some))
        cost = sum(prices[name]) if name in prices else None
        nodes.append(NodeCard(name, some[0].device_type, some[0].state, cells, used_part, cost, list_holders(cells)))
    promised = {job.id for job in board.jobs if job.promised}
    lent_s = sum(end - start for lane in board.lanes for start, end, job, _ in lane.held if job and job not in promised)
    codes = [
        Code(one["jobs"], one["type"], [(share, steps, rate) for share, steps, rate in one["points"]])
        for one in speeds
        if one["points"]
    ]
    usd_per_h = sum(map(sum, prices.values())) if prices else None
    return FleetView(nodes, codes, board, lent_s / 3600.0, span_s, usd_per_h)


def list_holders(cells: Sequence[Cell]) -> list[NodeHolder]:
    """Who holds how many of these devices, in their order."""
    found: dict[tuple[str, str, str], int] = {}
    for cell in cells:
        if cell.device.job_name is not None:
            key = (cell.device.job or "", cell.device.job_name, cell.tone)
            found[key] = found.get(key, 0) + 1
    return [NodeHolder(job, name, count, tone) for (job, name, tone), count in found.items()]


def find_cell_tone(device: DeviceInfo, tones: dict[str, str]) -> str:
    """The colour of a device: that of the job which holds it."""
    if device.job_name is None:
        return "idle" if device.state == "ready" else "away"
    return tones.get(device.job or "", "other")
