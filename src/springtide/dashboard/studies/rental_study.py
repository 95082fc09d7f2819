"""The search for machines to rent, as the pages and the API ask for it."""

import time
from datetime import date
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from springtide.core.shared_types import Document
from springtide.errors import InputError

Name = Annotated[str, Field(max_length=64)]
MOST_POINTS_BYTES = 1 << 20
PACKAGED_DEVICES = 8  # on a node of the packaged tables


class RentalBody(BaseModel):
    """A job with its measured speeds, and the limits that a plan must respect."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(max_length=64, description="What the exported task is called.")] = "job"
    command: Annotated[str, Field(max_length=1000, description="What the exported task runs.")] = "python train.py"
    points: Annotated[str, Field(max_length=MOST_POINTS_BYTES, description="Measured points: the text of a CSV file.")]
    model: Annotated[Name | None, Field(description="Which model of the points; the first if none is named.")] = None
    clouds: Annotated[list[Name], Field(max_length=8, description="aws, azure, gcp; empty: all.")] = []
    regions: Annotated[list[Name], Field(max_length=50, description="Names of regions; empty: all.")] = []
    types: Annotated[list[Name], Field(max_length=50, description="Types of GPUs or machines; empty: all.")] = []
    steps: Annotated[int, Field(ge=1, le=10**12)]
    global_batch: Annotated[int, Field(ge=1, le=10**9, description="Samples per step over all devices.")]
    logical_workers: Annotated[int | None, Field(ge=1, le=65536)] = None
    deadline: Annotated[str, Field(max_length=64, description="Such as 6h, or a date and time with zone.")] = ""
    budget_usd: Annotated[float | None, Field(gt=0, le=1e12)] = None
    spot: Annotated[bool, Field(description="Allow spot machines.")] = False


def run_rental(body: RentalBody) -> Document:
    """The plans, the front of time and cost, and a SkyPilot task for each of them."""
    from springtide.cloud.plan_reports import compare_obvious, describe_search
    from springtide.cloud.planner import search_plans
    from springtide.cloud.plans import Limits, Wanted, Work
    from springtide.cloud.refreshes import read_latest
    from springtide.cloud.step_times import find_speeds
    from springtide.core.durations import parse_deadline

    catalog = read_latest().narrow(body.clouds, body.regions, body.types)
    points = read_text(body.points)
    model = body.model or points[0].layout.model
    speeds = find_speeds(points, [], model, "the points", catalog)
    now_s = time.time()
    due_s = parse_deadline(body.deadline, now_s) - now_s if body.deadline else None
    level = "D1" if body.logical_workers else "none"
    work = Work(model, body.steps, body.global_batch, body.logical_workers, level)
    limits = Limits(deadline_s=due_s, budget_usd=body.budget_usd, spot=body.spot, mixes=False)
    search = search_plans(catalog, speeds, work, limits, Wanted(front=True))
    document = describe_search(search, work, limits, compare_obvious(search, work, limits))
    tasks = {plan.name: write_task(plan, body) for plan in (*search.best, *search.front)}
    today = date.today()
    return document | {"tasks": tasks, "prices": catalog.describe_age(today), "old_prices": catalog.is_old(today)}


def read_text(text: str) -> list[Any]:
    """The points of a text."""
    import tempfile
    from pathlib import Path

    from springtide.throughput.tables.points import read_points

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.csv"
        path.write_text(text, encoding="utf-8")
        try:
            return read_points(path)
        except InputError as error:
            raise type(error)(str(error).replace(str(path), "the points")) from None


def write_task(plan: Any, body: RentalBody) -> str:
    """The SkyPilot task of a plan; it brings the wheel that lies in the folder it is launched in."""
    import yaml

    from springtide import __version__
    from springtide.cloud.skypilot import TaskLaunch, export_plan

    launch = TaskLaunch(body.name, body.command, wheel=f"./springtide-{__version__}-py3-none-any.whl")
    task: str = yaml.safe_dump(export_plan(plan, launch), sort_keys=False)
    return task


def list_packaged() -> list[str]:
    """The models whose speeds come with the package, measured on A100s."""
    from springtide.throughput.tables.profiles import PACKAGED

    return sorted(path.stem for path in (PACKAGED / "a100").glob("*.csv"))


def write_packaged(model: str) -> str:
    """The packaged points of a model, as the text of a CSV file."""
    from springtide.throughput.tables.formats import TableFormat, import_points
    from springtide.throughput.tables.points import write_points
    from springtide.throughput.tables.profiles import PACKAGED

    if model not in list_packaged():
        raise InputError(f"no speeds of {model!r} come with the package; there are {', '.join(list_packaged())}")
    points = import_points(TableFormat(PACKAGED / "a100" / f"{model}.csv", "A100", PACKAGED_DEVICES), "elasticflow")
    return write_points(points)
