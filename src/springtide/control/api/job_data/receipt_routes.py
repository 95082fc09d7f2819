"""Receipts over HTTP: of a job that has succeeded, and whether one was sealed here."""

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from pydantic import Field

from springtide.control.api.requests import Body, JobRef
from springtide.control.storage import receipts

if TYPE_CHECKING:
    from springtide.control.api.routes import Api


class ReceiptBody(Body):
    """A receipt, as it was given out."""

    receipt: dict[str, Any] = Field(max_length=100)


def add_receipt_routes(app: FastAPI, api: "Api") -> None:
    """Giving out and checking receipts."""

    @app.get("/api/v1/jobs/{job}/receipt", tags=["jobs"])
    def show_receipt(request: Request, job: JobRef) -> dict[str, Any]:
        """What ran, on what, and digests of its state as a chain; sealed by this server."""
        return receipts.make_receipt(api.context.state_dir, api.find_job(job, request.state.user))

    @app.post("/api/v1/receipts/check", tags=["jobs"])
    def check_receipt(body: ReceiptBody) -> dict[str, Any]:
        """Whether this server has sealed exactly this receipt; it need not know the job any more."""
        return {"schema": 1, "sealed_here": receipts.was_sealed_here(api.context.state_dir, body.receipt)}
