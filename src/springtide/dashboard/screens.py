"""The screens that move: where each is, what it reads from the API, and which part of it is drawn anew."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

from fastapi import Request

from springtide.client.board_replies import BoardInfo, BoardJobInfo, HelpInfo, HistoryInfo, LanesInfo, PredictionInfo
from springtide.client.replies import DeviceInfo, EventInfo, JobInfo, KeptFileInfo, WhyInfo
from springtide.core.job_states import JobState
from springtide.dashboard.board_view import build_page, find_axis, read_query
from springtide.dashboard.fleet_view import build_fleet
from springtide.dashboard.in_process_api import ApiRefusal, InProcessApi
from springtide.dashboard.job_view import JobSources, build_job_page
from springtide.dashboard.report_view import build_rows

Values: TypeAlias = dict[str, Any]
#: Where the files of a job's output are in its tree, and how many of them a page shows.
OUTPUT = "output/"
MOST_SHOWN = 40
EVENTS_AT_ONCE = JOBS_AT_ONCE = 1000  # that the API gives


@dataclass(frozen=True, slots=True)
class Screen:
    """A page with one part that moves; `read` gives what its templates are filled with."""

    path: str
    template: str
    part: str
    part_template: str
    read: Callable[[InProcessApi, Request], Awaitable[Values]]
    name: Callable[[Values], str]
    #: What of an address's query the screen reads, as one text: whatever else stands there shows the same.
    identify: Callable[[Mapping[str, str]], str] = lambda query: ""


async def read_board(api: InProcessApi, request: Request) -> Values:
    """The board that an address asks for."""
    query = read_query(request.query_params)
    info = BoardInfo.read(await api.get("board", lanes="false", **query.ask()))
    axis = find_axis(info, query)
    past_s, least_s, cell_s = axis.now_s - axis.start_s, axis.past.least_s, 2 * axis.least_s
    lanes = LanesInfo.read(await api.get("lanes", past_s=str(past_s), least_s=str(least_s), cell_s=str(cell_s)))
    return {"board": build_page(info, lanes, query, axis)}


async def read_job(api: InProcessApi, request: Request) -> Values:
    """All of one job."""
    ref = request.path_params["job"]
    job = JobInfo.read(await api.get("jobs", ref))
    events = await read_events(api, job.id)
    told = (await api.get("jobs", job.id, "predictions"))["predictions"]
    history = await api.get("jobs", job.id, "history")
    sources = JobSources(
        job,
        WhyInfo.read(await api.get("jobs", job.id, "why")),
        events,
        [PredictionInfo.read(one) for one in told],
        HistoryInfo.read(history),
        history["now_s"],
    )
    return {
        "page": build_job_page(sources),
        "saved": await read_saved(api, job.id),
        "outputs": await read_outputs(api, job.id),
        "bits": await read_bits(api, job),
        "helps": await read_helps(api, job),
    }


async def read_events(api: InProcessApi, job: str) -> list[EventInfo]:
    """What happened to a job, oldest first: all of it, which may be more than one request gives."""
    events: list[EventInfo] = []
    while True:
        page = (await api.get("jobs", job, "events", after=str(events[-1].seq if events else 0)))["events"]
        events += map(EventInfo.read, page)
        if len(page) < EVENTS_AT_ONCE:
            return events


async def read_helps(api: InProcessApi, job: JobInfo) -> list[HelpInfo]:
    """What would help a job in danger, as the board says it; offers of others are none of its business."""
    if not any(one.kind == "at_risk" for one in job.conditions):
        return []
    board = BoardInfo.read(await api.get("board", limit="1", lanes="false"))
    return [one for one in board.helps if one.kind != "accept"]


async def read_saved(api: InProcessApi, job: str) -> Values:
    """The checkpoints of a job that can be downloaded, or why there are none to download."""
    try:
        return {"checkpoints": (await api.get("jobs", job, "checkpoints"))["checkpoints"], "why": ""}
    except ApiRefusal as refusal:
        return {"checkpoints": [], "why": str(refusal)}


async def read_outputs(api: InProcessApi, job: str) -> Values:
    """The files of a job's output that can be downloaded, and how many there are beside those that are shown."""
    told = await api.get("jobs", job, "files")
    files = [KeptFileInfo.read(one) for one in told["files"] if one["path"].startswith(OUTPUT)]
    shown = [{"name": one.path.removeprefix(OUTPUT), "href": quote(one.path), "size": one.size} for one in files]
    return {"files": shown[:MOST_SHOWN], "left_out": len(shown[MOST_SHOWN:]), "more": told["more"]}


async def read_bits(api: InProcessApi, job: JobInfo) -> Values | None:
    """What vouches for the bits of a job that has succeeded: its receipt, or why it has none."""
    if job.state is not JobState.SUCCEEDED:
        return None
    try:
        receipt = await api.get("jobs", job.id, "receipt")
    except ApiRefusal as refusal:
        return {"why": str(refusal)}
    links = [link for link in receipt["chain"] if "state" in link]
    return {"why": "", "links": len(links), "step": receipt["final"]["step"], "key": receipt["seal"]["key"]}


async def read_fleet(api: InProcessApi, _request: Request) -> Values:
    """Nodes and devices."""
    board = BoardInfo.read(await api.get("board", limit="1"))
    devices = [DeviceInfo.read(one) for one in (await api.get("nodes"))["devices"]]
    speeds = (await api.get("speeds"))["speeds"]
    return {"fleet": build_fleet(devices, board, await read_holders(api), speeds)}


async def read_holders(api: InProcessApi) -> list[BoardJobInfo]:
    """All jobs that hold devices, however many there are."""
    found: list[BoardJobInfo] = []
    while True:
        asked = {"held": "true", "lanes": "false", "limit": str(JOBS_AT_ONCE), "offset": str(len(found))}
        page = BoardInfo.read(await api.get("board", **asked))
        found += page.jobs
        if not page.jobs or len(found) >= page.count:
            return found


async def read_report(api: InProcessApi, _request: Request) -> Values:
    """What became of all jobs."""
    report = await api.get("report")
    return {"report": report, "rows": build_rows(report)}


SCREENS = (
    Screen(
        *("/", "board.html", "board", "part_board.html"),
        read=read_board,
        name=lambda values: "Board",
        identify=lambda query: repr(read_query(query)),
    ),
    Screen("/jobs/{job}", "job.html", "job", "part_job.html", read_job, lambda values: str(values["page"].job.name)),
    Screen("/fleet", "fleet.html", "fleet", "part_fleet.html", read_fleet, lambda values: "Fleet"),
)
