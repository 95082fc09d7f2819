"""The pages: who may look is checked before, what is shown comes from the API, what is done goes there."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from springtide.control.api.entrance.guard import PageRules
from springtide.control.api.entrance.refusals import Refused, write_error
from springtide.control.api.entrance.sessions import SESSION_S, Pulse, Sessions, name_cookie, read_cookie
from springtide.control.api.entrance.tokens import find_user
from springtide.control.storage.records import UserRecord
from springtide.dashboard import rendering
from springtide.dashboard.api_reference import read_operations
from springtide.dashboard.ask_pages import add_ask_pages
from springtide.dashboard.assets import FOR_EVER, load_assets
from springtide.dashboard.in_process_api import ApiRefusal, open_api
from springtide.dashboard.live import EventStream, Hub
from springtide.dashboard.posted_forms import find_next, read_form
from springtide.dashboard.screens import SCREENS, Screen, read_report
from springtide.dashboard.studies.study_pages import MOST_FORM_BYTES, add_study_pages
from springtide.dashboard.studies.study_routes import add_study_routes
from springtide.errors import SpringtideError

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


def add_pages(app: FastAPI, sessions: Sessions, pulse: Pulse) -> PageRules:
    """Put the pages on an application that has the API; returns what its guard must know of them."""
    add_sign_in(app, sessions)
    add_static(app)
    add_screens(app, Hub(pulse))
    add_actions(app)
    add_ask_pages(app)
    add_report(app)
    add_study_routes(app)
    add_study_pages(app)
    add_reference(app)
    add_rest(app)
    return PageRules(MOST_FORM_BYTES, rendering.write_refusal)


def add_sign_in(app: FastAPI, sessions: Sessions) -> None:
    """Sign in with a token or by a link, and out."""

    @app.get("/signin", include_in_schema=False)
    def show_sign_in(request: Request) -> HTMLResponse:
        where = find_next(request.query_params.get("next", "/"))
        secret = read_cookie(request.headers.get("cookie", ""), request.headers["host"])
        ended = (bool(secret) and sessions.find(secret) is None) or request.query_params.get("ended") == "yes"
        return rendering.answer_page(request, "signin.html", next=where, problem="", ended=ended)

    @app.post("/signin", include_in_schema=False)
    async def sign_in(request: Request) -> Response:
        form = await read_form(request)
        where = find_next(form.get("next", "/"))
        user = find_user(sessions.store, form.get("token", "").strip())
        if user is None:
            problem = "That is no token of this server. It is in the file the server named when it started."
            return show_signed_out(request, 401, problem, where)
        try:
            return let_in(request, await sessions.let_in(user), where)
        except Refused as refused:
            return show_refusal(request, refused, where)

    @app.get("/signin/{secret}", include_in_schema=False)
    async def sign_in_once(request: Request, secret: str) -> Response:
        user = sessions.find_linked(secret)
        try:
            session = "" if user is None else await sessions.let_in_once(user, secret)
        except Refused as refused:
            return show_refusal(request, refused)
        if not session:
            problem = "That link was used or is older than ten minutes. For a new one: springtide ui"
            return show_signed_out(request, 401, problem)
        return let_in(request, session, "/")

    @app.post("/signout", include_in_schema=False)
    async def sign_out(request: Request) -> Response:
        host = request.headers["host"]
        try:
            await sessions.let_out(request.state.user, read_cookie(request.headers.get("cookie", ""), host))
        except Refused as refused:
            headers, page = rendering.write_refusal(refused.sentence)
            return Response(page, refused.status, headers | refused.headers)
        response = rendering.go_to("/signin")
        response.delete_cookie(name_cookie(host), httponly=True, samesite="strict")
        return response


def let_in(request: Request, session: str, where: str) -> Response:
    """Go on in a session that has begun."""
    response, name = rendering.go_to(where), name_cookie(request.headers["host"])
    secure = request.url.scheme == "https"
    response.set_cookie(name, session, int(SESSION_S), httponly=True, samesite="strict", secure=secure)
    return response


def show_signed_out(request: Request, status: int, problem: str, where: str = "/") -> Response:
    """Why nobody was signed in, above the form to sign in."""
    return rendering.answer_page(request, "signin.html", status, next=where, problem=problem, ended=False)


def show_refusal(request: Request, refused: Refused, where: str = "/") -> Response:
    """Why a session could not begin now."""
    problem = refused.sentence[:1].upper() + refused.sentence[1:] + "."
    response = show_signed_out(request, refused.status, problem, where)
    response.headers.update(refused.headers)
    return response


def add_static(app: FastAPI) -> None:
    """Style, scripts and fonts."""

    @app.get("/static/{name:path}", include_in_schema=False)
    def send_asset(request: Request, name: str) -> Response:
        asset = load_assets().get(name)
        if asset is None:
            return JSONResponse(write_error("missing", f"there is no file {name!r}"), 404)
        headers = {"Cache-Control": FOR_EVER, "Vary": "Accept-Encoding", "X-Content-Type-Options": "nosniff"}
        if asset.packed and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(asset.packed, media_type=asset.kind, headers=headers | {"Content-Encoding": "gzip"})
        return Response(asset.data, media_type=asset.kind, headers=headers)


def add_screens(app: FastAPI, hub: Hub) -> None:
    """The pages that move, each with the stream of what moves on it."""
    for screen in SCREENS:
        app.add_api_route(screen.path, show_screen(app, screen), include_in_schema=False)
        app.add_api_route(f"/live{screen.path}", stream_screen(app, hub, screen), include_in_schema=False)


def add_report(app: FastAPI) -> None:
    """The page to print, which does not move."""

    @app.get("/report", include_in_schema=False)
    async def show_report(request: Request) -> Response:
        values = await read_report(open_api(app, request), request)
        return rendering.answer_page(request, "report.html", title="Report", **values)


def add_reference(app: FastAPI) -> None:
    """The API, described as the application describes itself."""

    @app.get("/docs", include_in_schema=False)
    async def show_reference(request: Request) -> Response:
        sections, origin = read_operations(app.openapi()), str(request.base_url).rstrip("/")
        return rendering.answer_page(request, "docs.html", title="HTTP API", sections=sections, origin=origin)


def show_screen(app: FastAPI, screen: Screen) -> Handler:
    """The handler that shows a screen."""

    async def show(request: Request) -> Response:
        try:
            values = await screen.read(open_api(app, request), request)
        except SpringtideError as error:
            return show_problem(request, error)
        return rendering.answer_page(request, screen.template, title=screen.name(values), **values)

    return show


def stream_screen(app: FastAPI, hub: Hub, screen: Screen) -> Handler:
    """The handler that sends what moves on a screen."""

    async def stream(request: Request) -> Response:
        api = open_api(app, request)

        async def draw() -> dict[str, str]:
            try:
                values = await screen.read(api, request)
            except SpringtideError as error:
                return {screen.part: rendering.render("part_gone.html", part=screen.part, sentence=str(error))}
            return {screen.part: rendering.render(screen.part_template, user=api.user, **values)}

        identify: Callable[[], UserRecord | None] = request.state.identify

        def is_welcome() -> bool:
            return identify() == api.user  # nobody once the session has ended, another once rights have changed

        key = (repr(api.user), request.url.path, screen.identify(request.query_params))
        packed = "gzip" in request.headers.get("accept-encoding", "")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Vary": "Accept-Encoding"}
        headers |= {"Content-Encoding": "gzip"} if packed else {}
        hub.admit(api.user)
        return EventStream(hub.watch(key, draw, is_welcome, packed), headers, partial(hub.leave, api.user))

    return stream


def show_problem(request: Request, error: SpringtideError) -> HTMLResponse:
    """What went wrong, as a person would want to read it."""
    status = error.status if isinstance(error, ApiRefusal) else 422
    return rendering.answer_page(request, "problem.html", status, title="Not possible", sentence=str(error))


def add_actions(app: FastAPI) -> None:
    """What the buttons do: forms, so that they work without scripts."""

    async def act(request: Request, where: str, *parts: str, **body: object) -> Response:
        try:
            await open_api(app, request).post(*parts, body=body)
        except SpringtideError as error:
            return show_problem(request, error)
        return rendering.go_to(where)

    @app.post("/jobs/{job}/cancel", include_in_schema=False)
    async def cancel(request: Request, job: str) -> Response:
        return await act(request, f"/jobs/{job}", "jobs", job, "cancel")

    @app.post("/jobs/{job}/resume", include_in_schema=False)
    async def resume(request: Request, job: str) -> Response:
        return await act(request, f"/jobs/{job}", "jobs", job, "resume")

    @app.post("/jobs/{job}/accept", include_in_schema=False)
    async def accept(request: Request, job: str) -> Response:
        offer = (await read_form(request)).get("offer") or None
        return await act(request, f"/jobs/{job}", "jobs", job, "accept", offer=offer)

    @app.post("/nodes/{node}/drain", include_in_schema=False)
    async def drain(request: Request, node: str) -> Response:
        grace = (await read_form(request)).get("grace") or "60s"
        return await act(request, "/fleet", "nodes", node, "drain", grace=grace)

    @app.post("/nodes/{node}/undrain", include_in_schema=False)
    async def undrain(request: Request, node: str) -> Response:
        where = find_next((await read_form(request)).get("next", "/fleet"))
        return await act(request, where, "nodes", node, "undrain")


def add_rest(app: FastAPI) -> None:
    """Whatever else a browser asks for; others get the API's own refusal."""

    @app.get("/{path:path}", include_in_schema=False)
    def show_missing(request: Request, path: str) -> Response:
        if path.startswith("api/") or "text/html" not in request.headers.get("accept", ""):
            return JSONResponse(write_error("http", "there is nothing at this address; all that there is: /docs"), 404)
        sentence = f"There is no page at /{path}."
        return rendering.answer_page(request, "problem.html", 404, title="No such page", sentence=sentence)
