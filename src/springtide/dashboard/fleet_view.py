"""The fleet as values that a template draws: nodes with their devices, and what is known of speeds."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from springtide.client.board_replies import BoardInfo, BoardJobInfo
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
    #: Whether nothing was promised to it: it has them for as long as nobody needs them.
    borrows: bool


@dataclass(frozen=True, slots=True)
class NodeCard:
    """A node."""

    name: str
    device_type: str
    state: str
    #: Of one that takes no work: since when, by when jobs are to have left, and how many have not.
    since_s: float | None
    leave_by_s: float | None
    leaving: int
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

    @property
    def borrowers(self) -> list[NodeHolder]:
        """The jobs to which some of its devices are lent."""
        return [one for one in self.holders if one.borrows]

    @property
    def lent(self) -> int:
        """How many of its devices are lent."""
        return sum(one.count for one in self.borrowers)


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
    span_s: float
    #: What all devices cost in an hour; None where nothing has a price.
    usd_per_h: float | None


def build_fleet(
    devices: Sequence[DeviceInfo], board: BoardInfo, holders: Sequence[BoardJobInfo], speeds: Sequence[dict[str, Any]]
) -> FleetView:
    """The fleet of the API's documents: the devices, the board with its lanes, and all jobs that hold devices."""
    tones = {job.id: find_tone(job) for job in holders}
    promised = {job.id for job in holders if job.promised}
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
        first, held = some[0], list_holders(cells, promised)
        drain = (first.state_since_s, first.leave_by_s, first.leaving)
        nodes.append(NodeCard(name, first.device_type, first.state, *drain, cells, used_part, cost, held))
    codes = [
        Code(one["jobs"], one["type"], [(share, steps, rate) for share, steps, rate in one["points"]])
        for one in speeds
        if one["points"]
    ]
    usd_per_h = sum(map(sum, prices.values())) if prices else None
    return FleetView(nodes, codes, board, span_s, usd_per_h)


def list_holders(cells: Sequence[Cell], promised: Set[str]) -> list[NodeHolder]:
    """Who holds how many of these devices, in their order."""
    found: dict[tuple[str, str, str], int] = {}
    for cell in cells:
        if cell.device.job_name is not None:
            key = (cell.device.job or "", cell.device.job_name, cell.tone)
            found[key] = found.get(key, 0) + 1
    return [
        NodeHolder(job, name, count, tone, bool(job) and job not in promised)
        for (job, name, tone), count in found.items()
    ]


def find_cell_tone(device: DeviceInfo, tones: dict[str, str]) -> str:
    """The colour of a device: that of the job which holds it."""
    if device.job_name is None:
        return "idle" if device.state == "ready" else "away"
    return tones.get(device.job or "", "other")
