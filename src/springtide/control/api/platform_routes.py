"""The server itself: whether it is well, its nodes, its events, what was put aside, and its end."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from springtide import __version__
from springtide.control.api import documents
from springtide.control.api.error_replies import check_admin
from springtide.control.api.prometheus import write_metrics
from springtide.control.api.requests import DrainBody, Number
from springtide.control.scheduling import nodes
from springtide.control.storage.records import UserRecord
from springtide.core.durations import parse_span
from springtide.core.job_file import build_schema

if TYPE_CHECKING:
    from springtide.control.api.routes import Api

Document = dict[str, Any]


def add_platform_routes(app: FastAPI, api: "Api") -> None:
    """The server itself."""

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

    @app.get("/api/v1/quarantine", tags=["server"])
    def list_quarantine(request: Request) -> Document:
        """What could not be worked in or stored, newest first; for admins."""
        check_admin(request.state.user)
        return documents.write_list("quarantine", map(documents.write_quarantine, api.store.list_quarantine()))

    @app.get("/metrics", tags=["server"], response_class=PlainTextResponse)
    def show_metrics() -> PlainTextResponse:
        """Metrics for Prometheus."""
        return PlainTextResponse(write_metrics(api.store, api.reconciler.inventory, api.now_s(), api.reconciler.health))

    @app.get("/api/v1/nodes", tags=["server"])
    def list_nodes(request: Request) -> Document:
        """The devices, and who holds them; of other users' jobs only that they do."""
        active = [documents.hide_name(record, request.state.user) for record in api.store.active_jobs()]
        holders = {name: record for record in active for name in record.devices}
        inventory = api.reconciler.inventory
        drains = nodes.read_drains(api.store.fact(nodes.FACT))
        devices = [
            {
                "name": name,
                "node": label,
                "state": nodes.describe_node(drains.get(label)),
                "state_since_s": drains[label].since_s if label in drains else None,
                "leave_by_s": drains[label].until_s if label in drains else None,
                "leaving": len(drains[label].jobs) if label in drains else 0,
                "type": device_type,
                "slowdown": round(inventory.find_slowest([name]), 2),
                "job": holders[name].id or None if name in holders else None,
                "job_name": holders[name].name if name in holders else None,
            }
            for label, node, device_type in zip(inventory.nodes, inventory.names, inventory.types, strict=True)
            for name in node
        ]
        return documents.write_list("devices", devices)

    @app.post("/api/v1/nodes/{node}/drain", tags=["server"])
    async def drain_node(request: Request, node: str, body: DrainBody) -> Document:
        """Let a node take no more work; its jobs shrink, move or checkpoint within the grace."""
        check_admin(request.state.user)
        grace_s = parse_span(body.grace, "grace")
        await api.call(lambda: api.operations.drain(node, grace_s))
        with api.telling(f"what becomes of node {node}"):
            return {"schema": 1, "node": node, "state": api.describe_node(node), "grace_s": grace_s}

    @app.post("/api/v1/nodes/{node}/undrain", tags=["server"])
    async def undrain_node(request: Request, node: str) -> Document:
        """Let a drained node take work again."""
        check_admin(request.state.user)
        await api.call(lambda: api.operations.undrain(node))
        with api.telling(f"what becomes of node {node}"):
            return {"schema": 1, "node": node, "state": api.describe_node(node)}

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
