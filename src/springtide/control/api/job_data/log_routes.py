"""What jobs print and record, over HTTP: logs as pages or as bytes from any place on, their times, and metrics."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response, StreamingResponse

from springtide.control.api import documents
from springtide.control.api.api import Api, reads_files
from springtide.control.api.job_data.byte_ranges import CHUNK_BYTES, find_range, send_range
from springtide.control.api.requests import JobInPath, Number
from springtide.control.storage import job_logs
from springtide.control.storage.job_logs import RankLog

Rank = Annotated[int, Query(ge=0, le=65536)]
Tail = Annotated[int | None, Query(ge=1, le=100000)]


def add_log_routes(app: FastAPI, api: Api) -> None:
    """Reading logs and metrics."""

    @app.get("/api/v1/jobs/{job}/logs", tags=["jobs"])
    @reads_files(api)
    def read_logs(request: Request, job: JobInPath, rank: Rank = 0, offset: Number = 0, tail: Tail = None) -> Any:
        """What a rank wrote, from an offset on, or its last lines; an offset stays good when files rotate.

        `first_offset` is where the log begins: what came before it is no longer kept.
        """
        record = api.find_job(job, request.state.user)
        page = job_logs.read_log(api.context.state_dir, record.id, rank, offset, tail, record.active)
        return {
            "schema": 1,
            "job": record.id,
            "state": str(record.state),
            "ended": not record.active,
            "rank": rank,
            "ranks": job_logs.list_ranks(api.context.state_dir, record.id),
            **asdict(page),
        }

    @app.get("/api/v1/jobs/{job}/logs/text", tags=["jobs"], response_class=StreamingResponse)
    @reads_files(api)
    def read_log_text(request: Request, job: JobInPath, rank: Rank = 0) -> Response:
        """The bytes that a rank wrote and that are kept. `Range: bytes=N-` or `bytes=N-M` gives a part of them."""
        record = api.find_job(job, request.state.user)
        with job_logs.open_log(api.context.state_dir, record.id, rank) as log:
            begin, end = log.begin, log.end
        wanted = request.headers.get("range")
        part = find_range(wanted, end, begin)
        return send_range(
            api.streams, stream_log(api, record.id, rank, part.start, part.stop), part, end, wanted is not None
        )

    @app.get("/api/v1/jobs/{job}/logs/times", tags=["jobs"])
    @reads_files(api)
    def read_log_times(request: Request, job: JobInPath, rank: Rank = 0, offset: Number = 0) -> Response:
        """When what a rank wrote came: pairs of an offset (8 bytes) and a Unix time (a double), little-endian."""
        record = api.find_job(job, request.state.user)
        with job_logs.open_log(api.context.state_dir, record.id, rank) as log:
            return Response(b"".join(log.stamps(offset)), media_type="application/octet-stream")

    @app.get("/api/v1/jobs/{job}/attempts", tags=["jobs"])
    @reads_files(api)
    def list_attempts(request: Request, job: JobInPath) -> dict[str, Any]:
        """The starts, resizes and ends of a job's processes, oldest first, those of its probe included."""
        record = api.find_job(job, request.state.user)
        return documents.write_list("attempts", map(asdict, job_logs.read_notes(api.context.state_dir, record.id)))

    @app.get("/api/v1/jobs/{job}/metrics", tags=["jobs"])
    @reads_files(api)
    def read_metrics(
        request: Request, job: JobInPath, after_step: Number = 0, offset: Number = 0, tail: Tail = None
    ) -> dict[str, Any]:
        """What `run.log` recorded, across all resumes; where `more` is true, go on with `next_offset`."""
        record = api.find_job(job, request.state.user)
        page = job_logs.read_metrics(api.context.state_dir, record.id, after_step, offset, tail)
        listed = documents.write_list("metrics", page.entries)
        return listed | {"next_offset": page.next_offset, "more": page.more}


def stream_log(api: Api, job_id: str, rank: int, begin: int, end: int) -> Iterator[bytes]:
    """The bytes of a log between two places; what is dropped meanwhile is not waited for."""
    with job_logs.open_log(api.context.state_dir, job_id, rank) as log:
        yield from read_pieces(log, begin, end)


def read_pieces(log: RankLog, begin: int, end: int) -> Iterator[bytes]:
    """The same of an open log."""
    while begin < end and (chunk := log.read(begin, min(CHUNK_BYTES, end - begin))):
        yield chunk
        begin += len(chunk)
