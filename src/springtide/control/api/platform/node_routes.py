"""The nodes of a platform: their devices, and whether they take work."""

from fastapi import FastAPI, Request

from springtide.control.api import documents
from springtide.control.api.api import Api
from springtide.control.api.error_replies import check_admin
from springtide.control.api.requests import DrainBody
from springtide.control.scheduling.machines import node_drains
from springtide.core.durations import parse_span
from springtide.core.shared_types import Document


def add_node_routes(app: FastAPI, api: Api) -> None:
    """Devices, and draining nodes."""

    @app.get("/api/v1/nodes", tags=["server"])
    def list_nodes(request: Request) -> Document:
        """The devices, and who holds them; of other users' jobs only that they do."""
        active = [documents.hide_name(record, request.state.user) for record in api.store.active_jobs()]
        holders = {name: record for record in active for name in record.devices}
        drains = node_drains.read_drains(api.store.fact(node_drains.FACT))
        devices = documents.write_devices(api.reconciler.inventory, drains, holders)
        return documents.write_list("devices", devices)

    @app.post("/api/v1/nodes/{node}/drain", tags=["server"])
    async def drain_node(request: Request, node: str, body: DrainBody) -> Document:
        """Let a node take no more work; its jobs shrink, move or checkpoint within the grace."""
        check_admin(request.state.user)
        grace_s = parse_span(body.grace, "grace")
        await api.call(lambda: api.operations.drain(node, grace_s))
        with api.telling(f"the change of node {node}"):
            return {"schema": 1, "node": node, "state": api.describe_node(node), "grace_s": grace_s}

    @app.post("/api/v1/nodes/{node}/undrain", tags=["server"])
    async def undrain_node(request: Request, node: str) -> Document:
        """Let a drained node take work again."""
        check_admin(request.state.user)
        await api.call(lambda: api.operations.undrain(node))
        with api.telling(f"the change of node {node}"):
            return {"schema": 1, "node": node, "state": api.describe_node(node)}
