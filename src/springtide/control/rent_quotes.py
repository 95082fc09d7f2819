"""What renting would cost a job that was declined: the third kind of counter-offer, beside a later date and less work.

Found when somebody reads the job, in the thread of that request, and kept for ten minutes; a submission never waits for
it. It rests on points of the job on GPUs that can be rented: a profile that was submitted with the code
(`*.points.csv`), or what this platform has measured on such GPUs itself. Nothing is rented, and nobody is asked online.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from springtide.control.storage.records import JobRecord, SpeedRecord
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.job_states import JobState
from springtide.core.shared_types import Document
from springtide.errors import CatalogError, InputError, SpringtideError
from springtide.throughput.tables.points import SUFFIX, Notes, Point, make_layout, read_notes, read_points, thin_sample

if TYPE_CHECKING:
    from springtide.cloud.planner import PlanSearch


CLOUDS = ("aws", "azure", "gcp")
NOWHERE = "none"
KEPT_S = 600.0
MOST_KEPT = 256
LARGEST_FILE_BYTES = 1 << 20
MOST_POINTS = 400
# Refusals that rented machines would not change.
NOT_FOR_LACK_OF_DEVICES = frozenset({"quota_exceeded", "unknown_duration"})


def read_clouds(text: str) -> tuple[str, ...]:
    """The clouds that `aws,gcp` names; none for `none`."""
    names = tuple(name.strip().lower() for name in str(text).split(","))
    if names == (NOWHERE,):
        return ()
    for name in names:
        if name not in CLOUDS:
            raise InputError(f"cloud {name!r} is unknown; there are {', '.join(CLOUDS)}, or {NOWHERE}")
    return names


@dataclass(frozen=True, slots=True)
class RentCase:
    """A declined job as renting sees it: its points, and the work and time that are left."""

    points: list[Point]
    model: str
    logical_workers: int
    worker_batch: int
    steps: int
    level: str
    types: tuple[str, ...]
    budget_usd: float | None


class RentQuotes:
    """What renting would cost each declined job, found when it is read and kept a while. For several threads."""

    def __init__(self, clouds: str, state_dir: StateDir, device_types: Sequence[str], store: Store) -> None:
        self.clouds = read_clouds(clouds)
        self.state_dir, self.store = state_dir, store
        rented = [device_type for device_type in device_types if self.clouds and can_rent(device_type, self.clouds)]
        self.measures = bool(rented)
        #: The type on which what was measured here is compared with what clouds have.
        self.device_type = next(iter(rented), device_types[0])
        self._found: OrderedDict[str, tuple[float, Document | None]] = OrderedDict()

    def find(self, record: JobRecord, now_s: float) -> Document | None:
        """What renting would cost this job; None where that does not arise."""
        if not self.clouds or not may_rent(record, now_s) or not self._may_know(record):
            return None
        kept = self._found.get(record.id)
        if kept is not None and time.monotonic() - kept[0] < KEPT_S:
            return kept[1]
        found = self._search(record, now_s)
        self._found[record.id] = (time.monotonic(), found)
        if len(self._found) > MOST_KEPT:
            self._found.popitem(last=False)
        return found

    def _may_know(self, record: JobRecord) -> bool:
        """Whether points of this job on some GPU may be at hand: its own, or this platform's. Takes microseconds."""
        return self.measures or next((self.state_dir.code / record.archive).glob(f"*{SUFFIX}"), None) is not None

    def _search(self, record: JobRecord, now_s: float) -> Document | None:
        known = {speed.device_type: speed for speed in self.store.speeds(record.speed_key)}
        try:
            code = self.state_dir.code / record.archive
            case = make_case(record, known.get(self.device_type), code, self.device_type)
            if case is None or record.deadline_s is None:
                return None
            return search_rent(case, self.clouds, record.deadline_s - now_s)
        except Exception as error:  # whatever a job's files hold must not keep its owner from reading of it
            sentence = str(error) if isinstance(error, SpringtideError) else f"it could not be found ({error})"
            return {"state": "unknown", "sentence": f"what renting would cost: {sentence}"}


def can_rent(device_type: str, clouds: tuple[str, ...]) -> bool:
    """Whether any of these clouds rents out devices of this type."""
    from springtide.cloud.catalog import normalise
    from springtide.cloud.refreshes import read_latest

    try:
        machines = read_latest().narrow(clouds).machines
    except CatalogError:
        return True  # the search will say what is wrong with it; a server starts without
    return any(normalise(device_type) in machine.keys for machine in machines)


def may_rent(record: JobRecord, now_s: float) -> bool:
    """Whether a job was declined for lack of devices, and its deadline is still ahead."""
    declined = record.state in (JobState.OFFERED, JobState.DECLINED) and record.reason not in NOT_FOR_LACK_OF_DEVICES
    return declined and record.deadline_s is not None and record.deadline_s > now_s


def make_case(record: JobRecord, speed: SpeedRecord | None, code: Path, device_type: str) -> RentCase | None:
    """The case of a job whose steps, logical workers and speed on some GPU are known; None for any other."""
    job, steps = record.spec, record.total_steps or (speed.total_steps if speed else None)
    if job.steps is not None:
        steps = job.steps if steps is None else min(job.steps, steps)
    points, notes = read_profile(code)
    workers = record.logical_workers or (speed.logical_workers if speed else None) or notes.logical_workers
    if not job.elastic or steps is None or workers is None:
        return None
    if not points and speed is not None:
        points, notes = list_measured(speed, device_type, workers), Notes(1)
    if not points or notes.worker_batch is None:
        return None
    types = tuple(job.device_types or ())
    return RentCase(
        points, points[0].layout.model, workers, notes.worker_batch, steps, job.determinism, types, job.budget_usd
    )


def read_profile(code: Path) -> tuple[list[Point], Notes]:
    """The profile that was submitted with the code: the first `*.points.csv` in its folder, and its notes."""
    for path in sorted(code.glob(f"*{SUFFIX}")):
        if path.stat().st_size <= LARGEST_FILE_BYTES:
            return thin_sample(read_points(path), MOST_POINTS), read_notes(path)
    return [], Notes()


def list_measured(speed: SpeedRecord, device_type: str, workers: int) -> list[Point]:
    """What this platform has measured, as points of one node; a batch of 1 is what a logical worker takes."""
    return [
        Point(make_layout("job", device_type, 1, share, ceil(workers / share)), 1.0 / rate)
        for share, (_, rate) in sorted(speed.points.items())
    ]


def search_rent(case: RentCase, clouds: tuple[str, ...], deadline_s: float) -> Document | None:
    """The cheapest machines that keep the deadline, spot included; None if the job was measured on none of them."""
    from springtide.cloud.catalog import Catalog, normalise
    from springtide.cloud.refreshes import read_latest

    catalog = read_latest().narrow(clouds)
    wanted = {normalise(name) for name in case.types}
    if wanted:
        kept = tuple(machine for machine in catalog.machines if wanted.intersection(machine.keys))
        catalog = replace(catalog, machines=kept)
    measured = {normalise(point.layout.device_type) for point in case.points}
    if not any(measured.intersection(machine.keys) for machine in catalog.machines):
        return None
    # scipy takes 44 MB: a server that has nothing to search does without
    from springtide.cloud.planner import search_plans
    from springtide.cloud.plans import Limits, Work
    from springtide.cloud.step_times import find_speed, measure_speeds

    speeds = measure_speeds(case.points, [], case.model)
    rentable = Catalog(tuple(m for m in catalog.machines if find_speed(speeds, m)), catalog.origin)
    batch = case.worker_batch * case.logical_workers
    work = Work(case.model, case.steps, batch, case.logical_workers, case.level)
    limits = Limits(deadline_s=deadline_s, budget_usd=case.budget_usd, spot=True, mixes=False)
    return write_rent(search_plans(rentable, speeds, work, limits), catalog.describe_age(date.today()))


def write_rent(search: "PlanSearch", prices: str) -> Document | None:
    """What was found, as a document."""
    from springtide.cloud.plan_reports import offer_rent, tell_nearest
    from springtide.cloud.plans import describe_plan

    offer = offer_rent(search)
    if offer is not None:
        return {"state": "offer", "sentence": offer, "prices": prices, "plan": describe_plan(search.best[0])}
    nearest = tell_nearest(search)
    if nearest is None:
        return None
    return {"state": "none", "sentence": nearest, "prices": prices, "plan": describe_plan(search.nearest[0])}
