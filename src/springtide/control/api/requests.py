"""What requests may hold: path and query parameters and JSON bodies, as types that are checked on the way in."""

from typing import Annotated

from fastapi import Header, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from springtide.core.job_file import JobFile

MOST_NUMBER = 2**53

JobInPath = Annotated[str, Path(max_length=200, description="An id, a name, or the beginning of either.")]
Hash = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
UserName = Annotated[str, Path(pattern="^[a-z_][a-z0-9_-]{0,31}$")]
Number = Annotated[int, Query(ge=0, le=MOST_NUMBER)]
IdempotencyKey = Annotated[str | None, Header(min_length=8, max_length=128, pattern="^[A-Za-z0-9._:-]+$")]
Secrets = Annotated[dict[str, Annotated[str, Field(max_length=65536)]], Field(max_length=200)]


class Body(BaseModel):
    """A request body: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SubmitBody(Body):
    """A job, the hash of its uploaded code, and the values of its secrets."""

    job: JobFile
    archive: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    secrets: Secrets = {}
    accept_offer: bool = False


class ResumeBody(Body):
    """The values of a job's secrets, which were deleted when it ended."""

    secrets: Secrets = {}


class PlanBody(Body):
    """A job and the hash of its uploaded code; whether it is measured if it is unknown, with which secrets.

    With `compare` the answer tells which other jobs it would change.
    """

    job: JobFile
    archive: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    probe: bool = False
    compare: bool = False
    secrets: Secrets = {}


class AcceptBody(Body):
    """Which offer to take; the nearest if none is named."""

    offer: Annotated[str, Field(max_length=100)] | None = None


class DrainBody(Body):
    """How long the jobs of a node may take to leave it."""

    grace: Annotated[str, Field(max_length=64)] = "60s"


class UserBody(Body):
    """A user's rights and limits; what is not given stays as it is."""

    admin: bool = False
    quota_device_s: Annotated[float, Field(gt=0, lt=1e15, allow_inf_nan=False, strict=False)] | None = None
    most_active: Annotated[int, Field(ge=0, le=10**6)] | None = None
    run_as: Annotated[str, Field(max_length=64)] | None = None
    project: Annotated[str, Field(pattern="^[a-z_][a-z0-9_-]{0,31}$")] | None = None


class ProjectBody(Body):
    """What the users of a project may have together; what is not given stays as it is."""

    quota_device_s: Annotated[float, Field(gt=0, lt=1e15, allow_inf_nan=False, strict=False)] | None = None
    most_active: Annotated[int, Field(ge=0, le=10**6)] | None = None
