"""The jobs of a sweep as one: shown, ended, held, released and resumed together."""

from collections.abc import Callable, Sequence

from fastapi import FastAPI, Request

from springtide.control.api import documents
from springtide.control.api.api import Api
from springtide.control.api.requests import JobInPath, ResumeBody
from springtide.control.scheduling.operations import can_hold, can_release, can_resume
from springtide.control.storage.records import JobRecord, UserRecord
from springtide.core.shared_types import Document
from springtide.errors import ConflictError, UnavailableError


def add_array_routes(app: FastAPI, api: Api) -> None:
    """Arrays, by name or id; of several of one name, the newest."""

    @app.get("/api/v1/arrays/{array}", tags=["jobs"])
    def show_array(request: Request, array: JobInPath) -> Document:
        """All jobs of an array, by its name or id; of several of one name, the newest."""
        return documents.write_array(api.find_array(array, request.state.user), api.now_s())

    @app.post("/api/v1/arrays/{array}/cancel", tags=["jobs"])
    async def cancel_array(request: Request, array: JobInPath) -> Document:
        """End all jobs of an array for good."""
        user: UserRecord = request.state.user
        active = [record for record in api.find_array(array, user) if record.active]
        return await change(api, array, user, active, lambda job_id: api.operations.cancel(job_id, user.name))

    @app.post("/api/v1/arrays/{array}/hold", tags=["jobs"])
    async def hold_array(request: Request, array: JobInPath) -> Document:
        """Let those jobs of an array that wait or run wait until they are released."""
        user: UserRecord = request.state.user
        chosen = choose(array, api.find_array(array, user), can_hold, "that waits or runs, and can be held")
        return await change(api, array, user, chosen, lambda job_id: api.operations.hold(job_id, user.name))

    @app.post("/api/v1/arrays/{array}/release", tags=["jobs"])
    async def release_array(request: Request, array: JobInPath, body: ResumeBody | None = None) -> Document:
        """Let the held jobs of an array go."""
        user: UserRecord = request.state.user
        secrets = body.secrets if body is not None else {}
        chosen = choose(array, api.find_array(array, user), can_release, "that is held")
        steps = await api.find_steps(chosen, user)
        return await change(
            api, array, user, chosen, lambda job_id: api.operations.release(job_id, steps[job_id], secrets)
        )

    @app.post("/api/v1/arrays/{array}/resume", tags=["jobs"])
    async def resume_array(request: Request, array: JobInPath, body: ResumeBody | None = None) -> Document:
        """Let the paused, cancelled and failed jobs of an array go on."""
        user: UserRecord = request.state.user
        secrets = body.secrets if body is not None else {}
        chosen = choose(array, api.find_array(array, user), can_resume, "that is paused, cancelled or failed")
        steps = await api.find_steps(chosen, user)
        return await change(
            api, array, user, chosen, lambda job_id: api.operations.resume(job_id, steps[job_id], secrets)
        )


def choose(array: str, records: Sequence[JobRecord], is_fit: Callable[[JobRecord], bool], what: str) -> list[JobRecord]:
    """The jobs of an array that this can be done with; refused where there is none."""
    chosen = [record for record in records if is_fit(record)]
    if not chosen:
        place = records[0].array_place
        name = array if place is None else place.name
        raise ConflictError(f"array {name!r} has no job {what}; see them with: springtide ps --all -o json")
    return chosen


async def change(
    api: Api, array: str, user: UserRecord, records: Sequence[JobRecord], act: Callable[[str], None]
) -> Document:
    """Do something with several jobs in one step, with all or none; returns the array as it is then."""
    place = api.find_array(array, user)[0].array_place
    array_id = array if place is None else place.id

    def act_on_all() -> None:
        for record in records:
            act(record.id)

    try:
        await api.call(act_on_all)
    except UnavailableError as error:
        raise UnavailableError(f"{error}; array {array_id}", error.unknown, array_id=array_id) from None
    with api.telling(f"array {array_id}", array_id=array_id):
        return documents.write_array(api.find_array(array, user), api.now_s())
