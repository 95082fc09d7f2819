"""Routes of what was used, of projects, and of what was told."""

from dataclasses import replace
from typing import Annotated

from fastapi import FastAPI, Query, Request

from springtide.control.api import documents
from springtide.control.api.api import Api
from springtide.control.api.error_replies import check_admin
from springtide.control.api.reports.usage_reports import UsageGroup, add_up, list_running
from springtide.control.api.requests import JobInPath, ProjectBody, UserName
from springtide.control.storage.records import ProjectRecord, UserRecord
from springtide.core.durations import parse_span
from springtide.core.shared_types import Document
from springtide.errors import ConflictError, MissingError


def add_usage_routes(app: FastAPI, api: Api) -> None:
    """Usage, projects, notices."""

    @app.get("/api/v1/usage", tags=["server"])
    def show_usage(
        request: Request, by: UsageGroup = UsageGroup.USER, since: Annotated[str, Query(max_length=64)] = "7d"
    ) -> Document:
        """Device-hours, money and promises of a span up to now; a user who is not an admin sees their own."""
        asker: UserRecord = request.state.user
        owner, now_s = None if asker.admin else asker.id, api.now_s()
        since_s = now_s - parse_span(since, "since")
        jobs = api.store.list_recent(since_s, owner)
        used = [*api.store.list_used(since_s, owner), *list_running(jobs, now_s)]
        prices = api.context.options.price_table
        is_priced = not prices.is_empty or any(one.usd for one in used)
        lines = add_up(by, used, jobs, since_s, is_priced)
        return documents.write_list("usage", lines) | {"by": str(by), "since": documents.show_time(since_s)}

    @app.get("/api/v1/projects", tags=["users"])
    def list_projects(request: Request) -> Document:
        """Groups of users, with their limits and who is in them; for admins."""
        check_admin(request.state.user)
        users = api.store.users()
        return documents.write_list(
            "projects",
            (
                documents.write_project(one) | {"users": [user.name for user in users if user.project == one.name]}
                for one in api.store.projects()
            ),
        )

    @app.put("/api/v1/projects/{name}", tags=["users"])
    def put_project(request: Request, name: UserName, body: ProjectBody) -> Document:
        """Add a project, or change what is given of its limits, null meaning none."""
        check_admin(request.state.user)
        with api.store.accounts:
            known = api.store.find_project(name) or ProjectRecord(name)
            project = replace(known, **body.model_dump(exclude_unset=True))
            api.store.put_project(project)
        return {"schema": 1, **documents.write_project(project)}

    @app.delete("/api/v1/projects/{name}", tags=["users"])
    def drop_project(request: Request, name: UserName) -> Document:
        """Remove a project that has no users."""
        check_admin(request.state.user)
        with api.store.accounts:  # nobody comes into it meanwhile
            members = [user.name for user in api.store.users() if user.project == name]
            if members:
                raise ConflictError(f"project {name} has users: {', '.join(members[:5])}; move them first")
            if not api.store.drop_project(name):
                raise MissingError(f"there is no project {name!r}")
        return {"schema": 1, "removed": name}

    @app.get("/api/v1/jobs/{job}/notices", tags=["jobs"])
    def list_notices(request: Request, job: JobInPath) -> Document:
        """What was told of a job, or is to be, and what went wrong with it."""
        record = api.find_job(job, request.state.user)
        return documents.write_list("notices", map(documents.write_notice, api.store.notices(record.id)))
