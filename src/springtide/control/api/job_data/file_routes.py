"""Results of jobs over HTTP: what a job has left, listed as one tree, and each file from any byte on."""

from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request
from fastapi.responses import Response, StreamingResponse

from springtide.control.api import documents
from springtide.control.api.api import Api, reads_files
from springtide.control.api.job_data.byte_ranges import find_range, send_file, send_range
from springtide.control.api.job_data.log_routes import stream_log
from springtide.control.api.requests import JobInPath
from springtide.control.storage import job_logs, job_outputs
from springtide.control.storage.job_outputs import KeptFile
from springtide.control.storage.records import JobRecord
from springtide.errors import ConflictError, MissingError
from springtide.executors.log_files import LOG_NAME

FilePath = Annotated[str, Path(max_length=4096, description="A path as the list of files has it.")]


def add_file_routes(app: FastAPI, api: Api) -> None:
    """Reading what jobs have left."""

    @app.get("/api/v1/jobs/{job}/files", tags=["jobs"])
    @reads_files(api)
    def list_files(request: Request, job: JobInPath) -> dict[str, Any]:
        """What a job has left: `output/...`, `checkpoints/step-.../...` and `logs/...`, by path."""
        record = api.find_job(job, request.state.user)
        kept = job_outputs.list_kept(api.context.state_dir, record.id, record.spec.checkpoint.dir is None)
        listed = documents.write_list("files", map(write_file, kept.files))
        return {"job": record.id, "name": record.name, **listed, "more": kept.more}

    @app.get("/api/v1/jobs/{job}/files/{path:path}", tags=["jobs"], response_class=StreamingResponse)
    @reads_files(api)
    def read_file(request: Request, job: JobInPath, path: FilePath) -> Response:
        """A file of a job. `Range: bytes=N-` or `bytes=N-M` gives a part of it, `If-Match` only its listed version."""
        record = api.find_job(job, request.state.user)
        return send_kept(api, record, check_path(record, path), request)


def write_file(file: KeptFile) -> dict[str, Any]:
    """A file as a document."""
    told = asdict(file)
    modified_s = told.pop("modified_s")
    return {"bytes": told.pop("size"), "modified": documents.show_time(modified_s), **told}


def check_path(record: JobRecord, path: str) -> PurePosixPath:
    """A path in the tree; MissingError where it leads out of it."""
    parts = path.split("/")
    if parts[0] not in (job_outputs.OUTPUT, job_outputs.CHECKPOINTS, job_outputs.LOGS) or len(parts) < 2:
        raise MissingError(f"{record.name} has no file {path!r}; list them with: springtide ls {record.name}")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise MissingError(f"{path!r} is not the path of a job's file; list them with: springtide ls {record.name}")
    if parts[0] == job_outputs.CHECKPOINTS and record.spec.checkpoint.dir is not None:
        raise ConflictError(
            f"the job file of {record.name} says checkpoint.dir: {record.spec.checkpoint.dir}; take its checkpoints "
            "from there"
        )
    return PurePosixPath(path)


def send_kept(api: Api, record: JobRecord, path: PurePosixPath, request: Request) -> Response:
    """A file of the tree, or the part of it that is asked for."""
    state_dir, wanted = api.context.state_dir, request.headers.get("range")
    match = LOG_NAME.fullmatch(path.name)
    if path.parts[0] == job_outputs.LOGS and match is not None and match[2] is None and len(path.parts) == 2:
        rank = int(match[1])
        with job_logs.open_log(state_dir, record.id, rank) as log:
            begin, size = log.begin, log.end - log.begin
        check_version(request, path, f"{begin:x}")
        part = find_range(wanted, size)
        chunks = stream_log(api, record.id, rank, begin + part.start, begin + part.stop)
        return send_range(api.streams, chunks, part, size, wanted is not None)
    try:
        opened = job_outputs.open_kept(state_dir, record.id, path)
    except OSError:
        raise MissingError(
            f"{record.name} has no file {str(path)!r} (any more); list them with: springtide ls {record.name}"
        ) from None
    if path.parts[0] != job_outputs.LOGS:
        try:
            check_version(request, path, opened.version)
        except ConflictError:
            opened.file.close()
            raise
    return send_file(api.streams, opened.file, wanted)


def check_version(request: Request, path: PurePosixPath, version: str) -> None:
    """Refuse a file that has changed since it was listed, if the request minds."""
    expected = request.headers.get("if-match")
    if expected is not None and expected.strip('"') != version:
        raise ConflictError(f"{str(path)!r} has changed since it was listed; list it again")
