"""Routes for those who look at the whole: the board, speeds, reports, and what was predicted of a job."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse

from springtide.control.api import board, device_lanes, documents
from springtide.control.api.api import Api
from springtide.control.api.board_sources import BoardSources
from springtide.control.api.reports import speed_documents
from springtide.control.api.reports.promise_reports import write_report
from springtide.control.api.requests import JobInPath
from springtide.control.scheduling.differences import PlanDifference, Standing
from springtide.control.scheduling.machines import node_drains
from springtide.control.storage.records import UserRecord
from springtide.core.shared_types import Document

MOST_PAST_S = 7 * 86400.0
MOST_ENDED = 500  # jobs that ended, on one board
MOST_CODES = 1000  # jobs whose speeds are told


def add_board_routes(app: FastAPI, api: Api) -> None:
    """What the pages in a browser need beyond one job."""

    @app.get("/api/v1/board", tags=["board"])
    def show_board(
        request: Request,
        past_s: Annotated[float, Query(ge=1, le=MOST_PAST_S, allow_inf_nan=False)] = 6 * 3600.0,
        group: Annotated[board.JobGroup | None, Query()] = None,
        find: Annotated[str, Query(max_length=100)] = "",
        owner: Annotated[str, Query(max_length=64)] = "",
        offset: Annotated[int, Query(ge=0, le=10**6)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        lanes: Annotated[bool, Query()] = True,
        held: Annotated[bool, Query()] = False,
    ) -> JSONResponse:
        """Jobs on one axis of time, those in danger first: past shares, plans, deadlines; the devices; one sentence.

        Instants are seconds since 1970. `find` looks in names and ids. `lanes=false` leaves the devices out.
        `held=true` gives only jobs that hold devices now.
        """
        sources = gather(api, request.state.user, past_s)
        chosen = board.Choice(group, find, owner, offset, limit, lanes, held)
        return JSONResponse(board.write_board(sources, chosen))  # not checked and copied once more by the framework

    @app.get("/api/v1/lanes", tags=["board"])
    def show_lanes(
        request: Request,
        past_s: Annotated[float, Query(ge=1, le=MOST_PAST_S, allow_inf_nan=False)] = 6 * 3600.0,
        least_s: Annotated[float, Query(gt=0, le=MOST_PAST_S, allow_inf_nan=False)] = 10.0,
        cell_s: Annotated[float | None, Query(gt=0, le=MOST_PAST_S, allow_inf_nan=False)] = None,
    ) -> JSONResponse:
        """Every device with who held it: [from, to, job, name]; and how many were held, on average, from when on.

        For a chart: what was shorter than `least_s` is joined with what is beside it, and averages are those of cells
        of `cell_s` (twice `least_s` if it is not given). Instants are seconds since 1970.
        """
        sources = gather(api, request.state.user, past_s)
        lanes = device_lanes.write_lanes(sources, sources.since_s, least_s)
        tracks, wide_s = sources.tracks.values(), cell_s or 2 * least_s
        held = device_lanes.average_held(tracks, sources.since_s, sources.now_s, wide_s)
        return JSONResponse({"schema": documents.SCHEMA, "lanes": lanes, "held": held})

    @app.get("/api/v1/speeds", tags=["board"])
    def list_speeds(request: Request) -> Document:
        """What was measured of the code of the jobs that a user may see: [share, steps, steps per second] by type."""
        names: dict[str, dict[str, None]] = {}
        for record in api.store.list_jobs(limit=MOST_CODES):
            if api.sees(record, request.state.user):
                names.setdefault(record.speed_key, {})[record.name] = None
        told = speed_documents.write_known(api.store.speeds(), names)
        return documents.write_list("speeds", told)

    @app.get("/api/v1/report", tags=["board"])
    def show_report(request: Request) -> Document:
        """Promises kept, prediction errors, work lost, device-hours and money, by user and by week of the end."""
        user: UserRecord = request.state.user
        entries = api.store.list_ledger(None if user.admin else user.id)
        options = api.context.options
        report = write_report(entries, options.price_per_device_hour, not options.price_table.is_empty)
        return report | {"now_s": documents.round_s(api.now_s())}


def add_history_routes(app: FastAPI, api: Api) -> None:
    """What came of one job, and what was predicted of it."""

    @app.get("/api/v1/jobs/{job}/predictions", tags=["jobs"])
    def list_predictions(request: Request, job: JobInPath) -> Document:
        """When a job was expected to end, as seen at each instant at which that moved.

        `late_s` is the same at the speeds that its promise counts on: the slow end of what is known.
        """
        record = api.find_job(job, request.state.user)
        told = [
            {"at_s": one.at_s, "predicted_s": one.predicted_s, "late_s": one.late_s}
            for one in api.store.predictions(record.id)
        ]
        return documents.write_list("predictions", told)

    @app.get("/api/v1/jobs/{job}/history", tags=["jobs"])
    def show_history(request: Request, job: JobInPath) -> Document:
        """How many devices a job has held since when: pairs of an instant and a number; and its speeds by share.

        `speeds` were measured; `predicted_speeds` are what the model of speeds makes of them on every number of devices
        that the job may hold (of very many, some), each with the slower speed that a promise counts on.
        """
        record = api.find_job(job, request.state.user)
        track = api.histories.read().get(record.id)
        shares = [] if track is None else track.shares(record.submitted_s)
        known = api.store.speeds(record.speed_key)
        return {
            "schema": documents.SCHEMA,
            "job": record.id,
            "now_s": documents.round_s(api.now_s()),
            "shares": shares,
            "speeds": speed_documents.write_measured(known),
            "predicted_speeds": [*speed_documents.write_predicted(record, known, api.reconciler.inventory)],
        }


def gather(api: Api, user: UserRecord, past_s: float) -> BoardSources:
    """All that the board of a user is made of, as it is now."""
    now_s, store, inventory = api.now_s(), api.store, api.reconciler.inventory
    drains = store.fact(node_drains.FACT)
    since_s = now_s - past_s
    tracks = api.histories.read()
    active, ended = api.recent.read(since_s, MOST_ENDED)
    seen = frozenset(record.id for record in (*active, *ended) if api.sees(record, user))
    kept, missed = store.count_promises(None if user.admin else user.id)
    offers = board.group_offers(store.offers(state="open"))
    offered = [record for record in active if record.id in offers and record.id in seen]
    costs = {id: usd for record in offered for id, usd in api.price_offers(record, offers[record.id]).items()}
    return BoardSources(
        now_s,
        since_s,
        min(api.opened_s, now_s if api.histories.first_s is None else api.histories.first_s),
        active,
        ended,
        seen,
        user.admin,
        tracks,
        api.recent.read_predictions(),
        offers,
        inventory,
        node_drains.describe_nodes(inventory, drains),
        {node: one.since_s for node, one in node_drains.read_drains(drains).items()},
        api.context.options.price_table,
        kept,
        missed,
        costs,
    )


def write_differences(api: Api, differences: Iterable[PlanDifference], user: UserRecord) -> list[Document]:
    """What would change for other jobs, as a user may know of it."""
    told = []
    for one in differences:
        record = api.store.job(one.job)
        seen = record is not None and api.sees(record, user)
        named = (record.id, record.name) if seen and record is not None else (None, device_lanes.HIDDEN)
        standings = {"before": write_standing(one.before), "after": write_standing(one.after)}
        deadline_s = record.deadline_s if seen and record is not None else None
        told.append({"job": named[0], "name": named[1], "deadline_s": deadline_s, **standings})
    return told


def write_standing(standing: Standing) -> Document:
    """Devices, plan and finish."""
    return {"share": standing.share, "plan": list(standing.plan), "finish_s": standing.finish_s}
