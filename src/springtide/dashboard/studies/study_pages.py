"""The pages of studies: Simulate and Cloud. Forms that are sent as they are, so that they work without scripts."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from springtide.core.shared_types import Document
from springtide.dashboard import rendering
from springtide.dashboard.in_process_api import InProcessApi, open_api
from springtide.dashboard.posted_forms import read_pairs
from springtide.dashboard.studies.cloud_view import build_rental
from springtide.dashboard.studies.rental_study import MOST_POINTS_BYTES, list_packaged, write_packaged
from springtide.dashboard.studies.simulate_view import build_simulation, write_csv
from springtide.dashboard.studies.simulation_study import MOST_TRACE_BYTES
from springtide.errors import InputError, SpringtideError
from springtide.policies import POLICIES

Fields = dict[str, Any]
SIMULATE = {
    "synthetic": "jobs=200,gap=600,seed=0",
    "trace": "",
    "cluster": "4x8:a100",
    "policies": ["elasticflow", "springtide", "edf"],
    "skip_bad_rows": "",
}
CLOUD = {
    "model": "resnet50",
    "points": "",
    "steps": "90000",
    "global_batch": "256",
    "logical_workers": "",
    "clouds": ["aws"],
    "deadline": "24h",
    "budget": "",
    "spot": "yes",
}
CLOUDS = ("aws", "azure", "gcp")
#: A letter is sent as three, at worst; what is somewhat too long is still read, so that the page can say so.
MOST_FORM_BYTES = {"/simulate": 4 * MOST_TRACE_BYTES, "/cloud": 4 * MOST_POINTS_BYTES}


@dataclass(frozen=True, slots=True)
class StudyPage:
    """A form, and what is shown of its answer."""

    path: str
    title: str
    template: str
    part: str
    start: Fields
    choices: dict[str, Any]
    ask: Callable[[InProcessApi, Fields], Awaitable[Any]]


def add_study_pages(app: FastAPI) -> None:
    """Simulate and Cloud, and what can be taken home from them."""
    for page in (
        StudyPage(
            "/simulate", "Simulate", "simulate.html", "part_simulate.html", SIMULATE, {"known": [*POLICIES]}, simulate
        ),
        StudyPage(
            "/cloud",
            "Cloud",
            "cloud.html",
            "part_cloud.html",
            CLOUD,
            {"models": list_packaged(), "known": CLOUDS},
            search,
        ),
    ):
        app.add_api_route(page.path, show_start(page), include_in_schema=False)
        app.add_api_route(page.path, show_answer(app, page), methods=["POST"], include_in_schema=False)
    add_downloads(app)


def show_start(page: StudyPage) -> Callable[[Request], Awaitable[Response]]:
    """The handler of a form that was not sent yet."""

    async def show(request: Request) -> Response:
        values = {"fields": page.start, "study": None, "problem": "", **page.choices}
        return rendering.answer_page(request, page.template, title=page.title, **values)

    return show


def show_answer(app: FastAPI, page: StudyPage) -> Callable[[Request], Awaitable[Response]]:
    """The handler of a form that was sent."""

    async def show(request: Request) -> Response:
        fields = await read_fields(request, page.start)
        study, problem = None, ""
        try:
            study = await page.ask(open_api(app, request), fields)
        except SpringtideError as error:
            problem = str(error)
        if request.headers.get("hx-request"):
            return rendering.send_html(request, rendering.render(page.part, study=study, problem=problem))
        values = {"fields": fields, "study": study, "problem": problem, **page.choices}
        return rendering.answer_page(request, page.template, title=page.title, **values)

    return show


def add_downloads(app: FastAPI) -> None:
    """The buttons that save what a form asks for."""

    def send(data: bytes | str, kind: str, name: str) -> Response:
        return Response(data, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})

    def refuse(request: Request, error: SpringtideError) -> Response:
        return rendering.answer_page(request, "problem.html", 422, title="Not possible", sentence=str(error))

    @app.post("/simulate/runs.csv", include_in_schema=False)
    async def save_table(request: Request) -> Response:
        try:
            body = write_simulation(await read_fields(request, SIMULATE))
            document = await open_api(app, request).post("simulations", body=body)
        except SpringtideError as error:
            return refuse(request, error)
        return send(write_csv(document), "text/csv", "runs.csv")

    @app.post("/simulate/runs.png", include_in_schema=False)
    async def save_picture(request: Request) -> Response:
        try:
            body = write_simulation(await read_fields(request, SIMULATE))
            picture = await open_api(app, request).post_bytes("simulations", "picture", body=body)
        except SpringtideError as error:
            return refuse(request, error)
        return send(picture, "image/png", "runs.png")


async def read_fields(request: Request, start: Fields) -> Fields:
    """The fields of a form; those that may have several values as lists."""
    pairs = await read_pairs(request)
    return {
        name: [value for key, value in pairs if key == name]
        if isinstance(usual, list)
        else next((value.strip() for key, value in pairs if key == name), "")
        for name, usual in start.items()
    }


async def simulate(api: InProcessApi, fields: Fields) -> Any:
    """The answer to the form of a simulation."""
    return build_simulation(await api.post("simulations", body=write_simulation(fields)))


def write_simulation(fields: Fields) -> Document:
    """The form of a simulation as the API takes it; a trace goes before a workload to draw."""
    if len(fields["trace"]) > MOST_TRACE_BYTES:
        raise InputError(
            f"the trace is longer than {MOST_TRACE_BYTES >> 20} MiB; run it with: springtide simulate FILE"
        )
    return {
        "synthetic": "" if fields["trace"] else fields["synthetic"],
        "trace": fields["trace"] + "\n" if fields["trace"] else "",
        "cluster": fields["cluster"],
        "policies": fields["policies"],
        "skip_bad_rows": bool(fields["skip_bad_rows"]),
    }


async def search(api: InProcessApi, fields: Fields) -> Any:
    """The answer to the form of a rental."""
    return build_rental(await api.post("rentals", body=write_rental(fields)))


def write_rental(fields: Fields) -> Document:
    """The form of a rental as the API takes it."""
    if len(fields["points"]) > MOST_POINTS_BYTES:
        raise InputError("more than 1 MiB of points; thin them out, or run it with: springtide plan --points FILE")
    budget = fields["budget"].upper().replace("USD", "").replace("$", "").strip()
    return {
        "name": fields["model"] or "job",
        "points": fields["points"] + "\n" if fields["points"] else write_packaged(fields["model"]),
        "clouds": fields["clouds"],
        "steps": fields["steps"],
        "global_batch": fields["global_batch"],
        "logical_workers": fields["logical_workers"] or None,
        "deadline": fields["deadline"],
        "budget_usd": budget or None,
        "spot": bool(fields["spot"]),
    }
