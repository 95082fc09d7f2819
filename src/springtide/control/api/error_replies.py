"""Errors as replies: a status, and a document with a reason and a sentence; never a bare code."""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DatabaseError
from starlette.exceptions import HTTPException

from springtide.control.api.entrance.guard import WRITING
from springtide.control.api.entrance.refusals import Refused, tell_failure, write_error
from springtide.control.scheduling.loop.calls import UNDONE, UNKNOWN
from springtide.control.scheduling.loop.health import show_safely
from springtide.control.storage.database.databases import is_unavailable, is_undone
from springtide.control.storage.records import UserRecord
from springtide.core.job_file import JobFile
from springtide.core.job_file_parts.job_explanations import explain_errors
from springtide.errors import (
    ConflictError,
    ExecutorError,
    ForbiddenError,
    LimitError,
    MissingError,
    RemovedUserError,
    SpringtideError,
    StateError,
    UnavailableError,
    UnknownOwnerError,
)

logger = logging.getLogger("springtide.control")

# What the framework says in its own words, in ours.
SENTENCES = {
    "There was an error parsing the body": "the body is not JSON that can be read, or it is nested too deeply",
    "Not Found": "there is nothing at this address; all that there is: /docs",
}


def check_admin(user: UserRecord) -> None:
    """Refuse a user who is not an admin."""
    if not user.admin:
        raise ForbiddenError(f"user {user.name} is not an admin; ask one")


STATUSES: dict[type[SpringtideError], int] = {
    MissingError: 404,
    ConflictError: 409,
    RemovedUserError: 401,
    LimitError: 429,
    ForbiddenError: 403,
    UnknownOwnerError: 409,
    StateError: 503,
    ExecutorError: 503,
}


def add_error_handlers(app: FastAPI) -> None:
    """Every error as a document with a reason and a sentence."""

    @app.exception_handler(SpringtideError)
    async def show_error(_request: Request, error: SpringtideError) -> JSONResponse:
        status = next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 422)
        return JSONResponse(write_error(error.reason, str(error)), status)

    @app.exception_handler(UnavailableError)
    async def show_unavailable(_request: Request, error: UnavailableError) -> JSONResponse:
        return write_unavailable(error)

    @app.exception_handler(OSError)
    @app.exception_handler(MemoryError)
    @app.exception_handler(DatabaseError)
    async def show_machine(request: Request, error: Exception) -> JSONResponse:
        if is_unavailable(error):
            return write_unavailable(blame_machine(error, request.method))
        failure = tell_failure(error)
        return JSONResponse(write_error(failure.reason, failure.sentence), failure.status)

    @app.exception_handler(Refused)
    async def show_refusal(_request: Request, refused: Refused) -> JSONResponse:
        return JSONResponse(write_error(refused.reason, refused.sentence), refused.status, headers=refused.headers)

    @app.exception_handler(Exception)
    async def show_failure(_request: Request, error: Exception) -> JSONResponse:
        failure = tell_failure(error)
        return JSONResponse(write_error(failure.reason, failure.sentence), failure.status)

    @app.exception_handler(RequestValidationError)
    async def show_invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        sentences = explain_errors(strip_places(error.errors()), JobFile)
        return JSONResponse(write_error("invalid", "; ".join(sentences)), 422)

    @app.exception_handler(HTTPException)
    async def show_http(_request: Request, error: HTTPException) -> JSONResponse:
        sentence = SENTENCES.get(str(error.detail), str(error.detail))
        return JSONResponse(write_error("http", sentence), error.status_code, headers=error.headers)


def write_unavailable(error: UnavailableError) -> JSONResponse:
    """The reply that something cannot be done now."""
    return JSONResponse(write_error("unavailable", str(error)) | error.facts, 503, headers={"Retry-After": "1"})


def blame_machine(error: Exception, method: str) -> UnavailableError:
    """What is told where the database is locked or a disk full, of a request that did not go through the reconciler."""
    logger.warning("a request found the machine unable: %s", show_safely(error))
    unknown = method in WRITING and not is_undone(error)
    return UnavailableError(f"{show_safely(error)}; {UNKNOWN if unknown else UNDONE}", unknown)


def strip_places(errors: Any) -> list[dict[str, Any]]:
    """Errors with places that start inside the job, so that they read as they do for a job file."""
    return [
        {**error, "loc": tuple(part for k, part in enumerate(error["loc"]) if not (k < 2 and part in ("body", "job")))}
        for error in errors
    ]
