"""Weights and checkpoints over HTTP: listed for who owns the job, and streamed from any byte on."""

from typing import Annotated, Any

from fastapi import FastAPI, Path, Request
from fastapi.responses import StreamingResponse

from springtide.control.api import documents
from springtide.control.api.api import Api, reads_files
from springtide.control.api.job_data.byte_ranges import send_file
from springtide.control.api.requests import MOST_NUMBER, JobInPath
from springtide.control.storage import saved_checkpoints
from springtide.control.storage.records import JobRecord, UserRecord
from springtide.control.storage.saved_checkpoints import MANIFEST, SavedCheckpoint
from springtide.errors import ConflictError, MissingError

StepInPath = Annotated[int, Path(ge=0, le=MOST_NUMBER)]
FileName = Annotated[str, Path(max_length=100, pattern=saved_checkpoints.NAME.pattern)]


def add_checkpoint_routes(app: FastAPI, api: Api) -> None:
    """Reading checkpoints."""

    @app.get("/api/v1/jobs/{job}/checkpoints", tags=["jobs"])
    @reads_files(api)
    def list_job_checkpoints(request: Request, job: JobInPath) -> dict[str, Any]:
        """The checkpoints of a job that are on disk, newest first; the newest of a finished job is its result."""
        record = find_own(api, job, request.state.user)
        found = saved_checkpoints.list_checkpoints(api.context.state_dir, record.id)
        listed = documents.write_list("checkpoints", map(write_checkpoint, found))
        return {"job": record.id, "name": record.name, **listed}

    @app.get("/api/v1/jobs/{job}/checkpoints/{step}/{file}", tags=["jobs"], response_class=StreamingResponse)
    @reads_files(api)
    def read_checkpoint_file(request: Request, job: JobInPath, step: StepInPath, file: FileName) -> StreamingResponse:
        """A file of a checkpoint. `Range: bytes=N-` gives it from byte N on, to go on where one broke off."""
        record = find_own(api, job, request.state.user)
        checkpoint = saved_checkpoints.read_checkpoint(api.context.state_dir, record.id, step)
        if checkpoint is None:
            raise MissingError(
                f"{record.name} has no checkpoint of step {step} (any more); list: springtide fetch --list"
            )
        if file not in (MANIFEST, *(one.name for one in checkpoint.files)):
            raise MissingError(f"the checkpoint of step {step} has no file {file!r}")
        try:
            opened = saved_checkpoints.open_file(api.context.state_dir, record.id, checkpoint, file)
        except OSError:
            raise MissingError(f"{file} of the checkpoint of step {step} cannot be read") from None
        return send_file(api.streams, opened, request.headers.get("range"))


def find_own(api: Api, job: str, user: UserRecord) -> JobRecord:
    """The job, if its checkpoints lie in a folder of the server's: any other it does not read for its users."""
    record = api.find_job(job, user)
    if record.spec.checkpoint.dir is not None:
        raise ConflictError(
            f"the job file of {record.name} says checkpoint.dir: {record.spec.checkpoint.dir}; take its checkpoints "
            "from there"
        )
    return record


def write_checkpoint(checkpoint: SavedCheckpoint) -> dict[str, Any]:
    """A checkpoint as a document."""
    files = [{"name": one.name, "bytes": one.size, "sha256": one.sha256} for one in checkpoint.files]
    return {"step": checkpoint.step, "torch": checkpoint.torch, "files": files}
