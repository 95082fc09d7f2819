"""The devices as lanes: who held each of them up to now, by type and node, on an axis of the past alone.

The colour of a bar says how its job stands, as everywhere; its shade tells the jobs beside each other apart. Pure.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import TypeAlias

from springtide.client.board_replies import LaneInfo
from springtide.dashboard.drawings.axis import Axis
from springtide.dashboard.drawings.shapes import TimeBar

TIGHT_LANES = 48  # devices: more are drawn as thin lines without names
TIGHT_ROOM, ROOM = 5.0, 18.0  # pixels for a lane
SHADES = 4
FindX: TypeAlias = Callable[[float], float]
ELSEWHERE = "load"  # the tone of jobs that are on another page
SOON_S = 1.0  # between the instants of two documents


@dataclass(frozen=True, slots=True)
class Lane:
    """A device, with the bars of who held it."""

    device: str
    bars: list[TimeBar]
    is_held: bool


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """The devices of one node."""

    node: str
    device_type: str
    state: str
    lanes: list[Lane]
    height: float
    axis: Axis
    #: From where on it takes no work, in per cent; None if it takes some.
    away_x: float | None

    @property
    def held(self) -> int:
        """How many of its devices are held now."""
        return sum(lane.is_held for lane in self.lanes)

    @property
    def has_names(self) -> bool:
        """Whether the lanes are high enough to be written on."""
        return self.height / len(self.lanes) >= ROOM


def build_lanes(lanes: Sequence[LaneInfo], axis: Axis, tones: Mapping[str, str]) -> list[LaneGroup]:
    """The devices by type and node, each with who held it on this axis."""
    nodes: dict[tuple[str, str], list[LaneInfo]] = defaultdict(list)
    holding: dict[str, str] = {}  # jobs of another page that go on: whoever holds a device now
    for lane in lanes:
        nodes[lane.device_type, lane.node].append(lane)
        holding |= {job: ELSEWHERE for _, _, job, _ in lane.held[-1:] if job and is_held(lane, axis)}
    tones = holding | {**tones}
    room = TIGHT_ROOM if len(lanes) > TIGHT_LANES else ROOM
    find_x = cache(axis.x)  # a job begins on several devices at once, and where another ended
    groups = []
    types = list(dict.fromkeys(device_type for device_type, _ in nodes))
    for (device_type, node), some in sorted(nodes.items(), key=lambda one: types.index(one[0][0])):
        drawn = [
            Lane(lane.device, [*draw_lane(lane, find_x, k * room, room, tones)], is_held(lane, axis))
            for k, lane in enumerate(some)
        ]
        since_s = some[0].state_since_s
        away_x = 0.0 if since_s is None else find_x(since_s)
        away = None if some[0].state == "ready" else away_x
        groups.append(LaneGroup(node, device_type, some[0].state, drawn, room * len(some), axis, away))
    return shade(groups)


def is_held(lane: LaneInfo, axis: Axis) -> bool:
    """Whether somebody holds a device now."""
    return bool(lane.held) and lane.held[-1][1] >= axis.now_s - SOON_S


def draw_lane(lane: LaneInfo, find_x: FindX, y: float, room: float, tones: Mapping[str, str]) -> Iterator[TimeBar]:
    """Who held one device; where nobody did there is no bar."""
    for start_s, end_s, job_id, name in lane.held:
        x, end_x = find_x(start_s), find_x(end_s)
        if end_x > x:
            tone = tones.get(job_id or "", "done" if job_id else "other")
            yield TimeBar(x, round(end_x - x, 3), y + 1, room - 2, 1, name, job_id or "", tone)


def shade(groups: Sequence[LaneGroup]) -> list[LaneGroup]:
    """The lanes with shades: jobs that touch, one after the other or on devices beside each other, have different ones.

    As far as there are shades: each job takes the first that none of its neighbours has, in their order.
    """
    beside: dict[str, set[str]] = defaultdict(set)
    for one, other in list_neighbours(groups):
        beside[one].add(other)
        beside[other].add(one)
    shades: dict[str, int] = {}
    for job in beside:
        taken = {shades[other] for other in beside[job] if other in shades}
        shades[job] = next((number for number in range(SHADES) if number not in taken), len(shades) % SHADES)
    return [
        replace(group, lanes=[replace(lane, bars=[*shade_bars(lane.bars, shades)]) for lane in group.lanes])
        for group in groups
    ]


def shade_bars(bars: Iterable[TimeBar], shades: Mapping[str, int]) -> Iterator[TimeBar]:
    """Bars in the shades of their jobs."""
    return (replace(bar, shade=shades.get(bar.job, 0)) for bar in bars)


def list_neighbours(groups: Sequence[LaneGroup]) -> Iterator[tuple[str, str]]:
    """Pairs of jobs that touch."""
    for group in groups:
        for lane in group.lanes:
            yield from ((one.job, other.job) for one, other in pairwise(lane.bars) if one.job != other.job)
        for above, below in pairwise(group.lanes):
            yield from list_overlaps(above.bars, below.bars)


def list_overlaps(above: Sequence[TimeBar], below: Sequence[TimeBar]) -> Iterator[tuple[str, str]]:
    """Pairs of jobs that held two devices at once; both lanes are in the order of time."""
    i = j = 0
    while i < len(above) and j < len(below):
        one, other = above[i], below[j]
        if one.job != other.job and one.x < other.x + other.width and other.x < one.x + one.width:
            yield one.job, other.job
        if one.x + one.width <= other.x + other.width:
            i += 1
        else:
            j += 1
