"""Receipts over HTTP: of a job that has succeeded, whether one was sealed here, and who has put one to the proof."""

from typing import Annotated, Any

from fastapi import FastAPI, Request
from pydantic import Field

from springtide.control.api.api import Api, reads_files
from springtide.control.api.requests import MOST_NUMBER, Body, JobInPath
from springtide.control.storage import receipts
from springtide.core.receipt_format import MOST_ON, ON, Verification
from springtide.errors import ConflictError


class ReceiptBody(Body):
    """A receipt, as it was given out."""

    receipt: dict[str, Any] = Field(max_length=100)


StepNumber = Annotated[int, Field(ge=0, le=MOST_NUMBER)]


class VerificationBody(ReceiptBody):
    """What came of training what a receipt is of again."""

    holds: bool
    digests: Annotated[int, Field(ge=1, le=MOST_NUMBER)]
    first_step: StepNumber
    last_step: StepNumber
    first_difference: StepNumber | None = None
    on: Annotated[str, Field(max_length=MOST_ON, pattern=f"^{ON.pattern}$")]

    def read(self) -> Verification:
        """It, as a value."""
        return Verification(**self.model_dump(exclude={"receipt"}))


def add_receipt_routes(app: FastAPI, api: Api) -> None:
    """Giving out and checking receipts."""

    @app.get("/api/v1/jobs/{job}/receipt", tags=["jobs"])
    @reads_files(api)
    def show_receipt(request: Request, job: JobInPath) -> dict[str, Any]:
        """What ran, on what, and digests of its state as a chain; sealed by this server."""
        return receipts.make_receipt(api.context.state_dir, api.find_job(job, request.state.user))

    @app.post("/api/v1/receipts/check", tags=["jobs"])
    def check_receipt(body: ReceiptBody) -> dict[str, Any]:
        """Whether this server has sealed exactly this receipt; it need not know the job any more."""
        return {"schema": 1, "sealed_here": receipts.was_sealed_here(api.context.state_dir, body.receipt)}

    @app.post("/api/v1/jobs/{job}/verifications", tags=["jobs"])
    async def note_verification(request: Request, job: JobInPath, body: VerificationBody) -> dict[str, Any]:
        """Keep with a job, among its events, what a user says came of training its receipt again."""
        record, user = api.find_job(job, request.state.user), request.state.user
        sealed = receipts.was_sealed_here(api.context.state_dir, body.receipt)
        if not sealed or body.receipt["job"]["id"] != record.id:
            raise ConflictError(f"this is not a receipt of {record.name} ({record.id}) that this server has sealed")
        await api.call(lambda: api.operations.note_verification(record.id, user.name, body.read()))
        with api.telling(f"the verification of job {record.id}", record.id):
            return api.show_job(api.reload(record.id))
