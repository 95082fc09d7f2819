"""Who held which device when, for charts: as it was, or only what is wide enough to be seen."""

from collections.abc import Iterable, Iterator
from itertools import accumulate

from springtide.control.api.board_sources import BoardSources
from springtide.control.api.histories import Track
from springtide.core.shared_types import Document

#: From when to when, the job's id if the reader may know it, and its name.
Held = tuple[float, float, str | None, str]
HIDDEN = "another user's job"
SEVERAL = "several short jobs"
MOST_CELLS = 10_000


def write_lanes(sources: BoardSources, since_s: float, least_s: float = 0.0) -> list[Document]:
    """Every device with who held it since an instant; what is shorter than `least_s` is joined with its neighbours."""
    inventory, held = sources.inventory, gather_held(sources, since_s)
    return [
        {
            "device": device,
            "node": label,
            "type": device_type,
            "state": sources.node_states[label],
            "state_since_s": sources.away_since.get(label),
            "usd_per_h": None if sources.prices.is_empty else sources.prices.find(device_type),
            "held": list(join_short(sorted(held.get(device, []), key=lambda one: one[:2]), least_s)),
        }
        for label, node, device_type in zip(inventory.nodes, inventory.names, inventory.types, strict=True)
        for device in node
    ]


def gather_held(sources: BoardSources, since_s: float) -> dict[str, list[Held]]:
    """What each device was held for, by its name; of other users' jobs only that they held it."""
    names = {record.id: record.name for record in (*sources.active, *sources.ended)}
    held: dict[str, list[Held]] = {}
    for job_id, track in sources.tracks.items():
        known = (job_id, names.get(job_id, "")) if job_id in sources.seen else (None, HIDDEN)
        for start_s, end_s, devices in track.spans(since_s, sources.now_s):
            one = (start_s, end_s, *known)
            for device in devices:
                held.setdefault(device, []).append(one)
    return held


def join_short(spans: Iterable[Held], least_s: float) -> Iterator[Held]:
    """The spans that can be seen; short ones with no visible gap between them are one, which is nobody's."""
    several: Held | None = None
    for one in spans:
        if one[1] - one[0] >= least_s:
            yield from show_several(several, least_s)
            several = None
            yield one
        elif several is not None and one[0] - several[1] < least_s:
            several = (several[0], max(several[1], one[1]), None, SEVERAL)
        else:
            yield from show_several(several, least_s)
            several = one
    yield from show_several(several, least_s)


def show_several(several: Held | None, least_s: float) -> Iterator[Held]:
    """Short spans that were joined, if together they can be seen."""
    if several is not None and several[1] - several[0] >= least_s:
        yield several


def sum_held(tracks: Iterable[Track], since_s: float, now_s: float) -> float:
    """Device-seconds that were held since an instant."""
    return sum(
        (end_s - start_s) * len(devices) for track in tracks for start_s, end_s, devices in track.spans(since_s, now_s)
    )


def average_held(tracks: Iterable[Track], since_s: float, now_s: float, cell_s: float) -> list[tuple[float, float]]:
    """(instant, devices held on average from then on) for cells of one width; equal neighbours are one."""
    count = max(1, int(min(MOST_CELLS, (now_s - since_s) / cell_s)))  # cells may be too narrow to be counted
    width_s = (now_s - since_s) / count
    edges = [0.0] * (count + 1)  # device-seconds in cells that a span covers in part
    whole = [0] * (count + 1)  # by how many devices more are held in every cell from here on
    for track in tracks:
        for start_s, end_s, devices in track.spans(since_s, now_s):
            first, last = int((start_s - since_s) / width_s), int((end_s - since_s) / width_s)
            edges[first] -= (start_s - since_s - first * width_s) * len(devices)
            edges[last] += (end_s - since_s - last * width_s) * len(devices)
            whole[first] += len(devices)
            whole[last] -= len(devices)
    steps: list[tuple[float, float]] = []
    for k, covered in enumerate(accumulate(whole[:count])):
        held = round(covered + edges[k] / width_s, 1)
        if not steps or steps[-1][1] != held:
            steps.append((since_s + k * width_s, held))
    return steps
