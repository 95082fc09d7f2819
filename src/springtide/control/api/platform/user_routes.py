"""Users, their limits and their tokens, for admins; and links that sign a browser in."""

from dataclasses import replace

from fastapi import FastAPI, Request

from springtide.control.api import documents
from springtide.control.api.api import Api
from springtide.control.api.entrance.tokens import check_run_as, hash_token, make_token
from springtide.control.api.error_replies import check_admin
from springtide.control.api.requests import UserBody, UserName
from springtide.control.storage.records import UserRecord
from springtide.control.storage.store import Store
from springtide.core.shared_types import Document
from springtide.errors import ConflictError, MissingError


def check_still_admin(store: Store, asker: UserRecord) -> None:
    """Refuse one who was an admin when they asked: two who take each other's rights at once would leave nobody."""
    check_admin(store.find_owner(asker.id) or replace(asker, admin=False))


def add_user_routes(app: FastAPI, api: Api) -> None:
    """Users, for admins; and links, for everyone."""

    @app.get("/api/v1/users", tags=["users"])
    def list_users(request: Request) -> Document:
        """Everyone who has a token."""
        check_admin(request.state.user)
        return documents.write_list("users", map(documents.write_user, api.store.users()))

    @app.put("/api/v1/users/{name}", tags=["users"])
    def put_user(request: Request, name: UserName, body: UserBody) -> Document:
        """Add a user with a new token, shown once; or change what is given of one, null meaning the default."""
        check_admin(request.state.user)
        given = body.model_dump(exclude_unset=True)
        if name == request.state.user.name and given.get("admin") is False:
            raise ConflictError(f"user {name} cannot take their own admin rights away; keep them with --admin")
        given |= {"project": body.project or ""} if "project" in given else {}
        check_run_as(body.run_as)
        if body.run_as is not None:
            api.context.state_dir.let_through()
        with api.store.accounts:  # what another admin changes meanwhile would be taken back
            check_still_admin(api.store, request.state.user)
            if body.project is not None and api.store.find_project(body.project) is None:
                raise MissingError(
                    f"there is no project {body.project!r}; add it with: springtide projects add {body.project}"
                )
            known = api.store.find_user(name)
            token = make_token() if known is None else None
            before = known or UserRecord(name, hash_token(token or ""))
            user = api.store.put_user(replace(before, **given))
        return {"schema": 1, **documents.write_user(user), "token": token}

    @app.delete("/api/v1/users/{name}", tags=["users"])
    def drop_user(request: Request, name: UserName) -> Document:
        """Take a user's token away; their jobs go on."""
        check_admin(request.state.user)
        if name == request.state.user.name:
            raise ConflictError(f"user {name} cannot remove themselves; ask another admin")
        with api.store.accounts:
            check_still_admin(api.store, request.state.user)
            if not api.store.drop_user(name):
                raise MissingError(f"there is no user {name!r}")
        return {"schema": 1, "removed": name}

    @app.post("/api/v1/links", tags=["users"], status_code=201)
    def make_link(request: Request) -> Document:
        """A link that signs a browser in as the user of this token, once, within ten minutes."""
        return {"schema": documents.SCHEMA, "path": api.sessions.make_link(request.state.user)}
