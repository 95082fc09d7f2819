"""The server itself: whether it is well, its events, what was put aside, and its end."""

from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from springtide import __version__
from springtide.control.api import documents
from springtide.control.api.api import Api
from springtide.control.api.error_replies import check_admin
from springtide.control.api.platform.prometheus import write_metrics
from springtide.control.api.requests import Number
from springtide.control.storage.records import UserRecord
from springtide.core.job_file import build_schema
from springtide.core.shared_types import Document


def add_health_routes(app: FastAPI, api: Api) -> None:
    """Whether the server is well, for those who watch it."""

    @app.get("/healthz", tags=["server"])
    def check_health() -> Document:
        """That the server is up; needs no token."""
        return {"schema": 1, "status": "ok", "version": __version__}

    @app.get("/readyz", tags=["server"])
    def check_readiness() -> JSONResponse:
        """Whether the platform moves: last good step, executor, store, disk, with ages; 503 if not. Needs no token."""
        checks = api.reconciler.health.check(api.store, api.context.state_dir.root)
        checks["load"] = api.check_load()  # a platform beside others is slower, and ready
        is_ready = all(check["ok"] for check in checks.values())
        document = {"schema": 1, "status": "ready" if is_ready else "not_ready", "checks": checks}
        return JSONResponse(document, 200 if is_ready else 503)

    @app.get("/metrics", tags=["server"], response_class=PlainTextResponse)
    def show_metrics() -> PlainTextResponse:
        """Metrics for Prometheus."""
        return PlainTextResponse(write_metrics(api.store, api.reconciler.inventory, api.now_s(), api.reconciler.health))


def add_server_routes(app: FastAPI, api: Api) -> None:
    """The server itself."""

    @app.get("/api/v1/quarantine", tags=["server"])
    def list_quarantine(request: Request) -> Document:
        """What could not be worked in or stored, newest first; for admins."""
        check_admin(request.state.user)
        return documents.write_list("quarantine", map(documents.write_quarantine, api.store.list_quarantine()))

    @app.get("/api/v1/events", tags=["server"])
    def list_events(
        request: Request, after: Number = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 1000
    ) -> Document:
        """What happened to all jobs a user may see, oldest first."""
        user: UserRecord = request.state.user
        events = api.store.events(None, after, limit, None if user.admin else user.id)
        return documents.write_list("events", api.show_events(events, user))

    @app.get("/api/v1/server", tags=["server"])
    def show_server() -> Document:
        """What this server is, and what it holds."""
        context = api.context
        return {
            "schema": 1,
            "version": __version__,
            "policy": context.options.policy,
            "promises": api.reconciler.policy.promises,
            "archive_limit_bytes": context.options.archive_limit_bytes,
            "devices": api.reconciler.inventory.cluster.total,
            "device_type": ",".join(api.reconciler.inventory.device_types),
            "jobs": api.store.count_jobs(),
            "quarantined": api.store.count_quarantine(),
            "standstill": api.reconciler.health.tell() or None,
            "outage": api.reconciler.health.tell_outage() or None,
            "outside_load": api.check_load()["sentence"] or None,
            "now": documents.show_time(api.now_s()),
        }

    @app.get("/api/v1/schema", tags=["server"])
    def show_schema() -> Document:
        """The JSON Schema of a job file."""
        return build_schema()

    @app.post("/api/v1/stop", tags=["server"], status_code=202)
    def stop_server(request: Request) -> Document:
        """End the server and everything it started; jobs go on from their checkpoints when it is started again."""
        check_admin(request.state.user)
        api.request_stop()
        return {"schema": 1, "status": "stopping"}
