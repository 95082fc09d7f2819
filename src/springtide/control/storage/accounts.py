"""Who may use the platform: users, those that were, and their projects, in the tables of a database.

Changed by admins, whichever thread serves them, apart from the reconciler's batches.
"""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.engine import Connection, Engine

from springtide.control.storage.database.databases import upsert
from springtide.control.storage.database.rows import write_fields
from springtide.control.storage.database.tables import FORMER_USERS, PROJECTS, USERS
from springtide.control.storage.leadership import Leadership
from springtide.control.storage.records import ProjectRecord, UserRecord
from springtide.errors import UnknownOwnerError


class AccountStore:
    """Reads and writes users and projects. Safe to use from several threads."""

    def __init__(self, engine: Engine, leadership: Leadership | None) -> None:
        self.engine = engine
        #: Without which nothing is written; None: this is the only server there can be.
        self.leadership = leadership
        #: Held by whoever changes users or projects, from what they read to what they write.
        self.accounts = threading.RLock()
        self._users: list[UserRecord] | None = None

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction that only the server which holds the lead can commit."""
        with self.engine.begin() as connection:
            if self.leadership is not None:
                self.leadership.check(connection)
            yield connection

    def users(self) -> list[UserRecord]:
        """Everyone who has a token; kept in memory, because every request asks and only this process changes them."""
        users = self._users
        if users is None:
            with self.accounts, self.engine.connect() as connection:  # else what is read could be old when it is kept
                rows = connection.execute(select(USERS).order_by(USERS.c.name))
                users = self._users = [UserRecord(**row._mapping) for row in rows]
        return users

    def find_user(self, name: str) -> UserRecord | None:
        """The user of a name; None if there is none, or none any more."""
        return next((user for user in self.users() if user.name == name), None)

    def find_owner(self, owner: str) -> UserRecord | None:
        """The user of an id; None if there is none any more."""
        return next((user for user in self.users() if user.id == owner), None)

    def find_run_as(self, owner: str) -> str | None:
        """The system user that the jobs of an owner run as, also after they were removed; None: the server's own.

        UnknownOwnerError for one who is no user and was none, where there are users.
        """
        user = self.find_owner(owner)
        if user is not None or not self.users():
            return None if user is None else user.run_as
        with self.engine.connect() as connection:
            found = connection.execute(select(FORMER_USERS.c.run_as).where(FORMER_USERS.c.id == owner)).first()
        if found is None:
            raise UnknownOwnerError(
                f"its owner {owner!r} is no user here and was none, so nobody knows as whom it runs; submit it anew"
            )
        run_as: str | None = found.run_as
        return run_as

    def put_user(self, user: UserRecord) -> UserRecord:
        """Add a user under an id that nobody had, or change one; returns the user with the id."""
        with self.accounts:
            known = self.find_user(user.name)
            user = replace(user, id=f"@{secrets.token_hex(8)}" if known is None else known.id)
            with self.begin() as connection:
                upsert(connection, USERS, "name", [write_fields(user)])
            others = (one for one in self.users() if one.name != user.name)
            self._users = sorted([*others, user], key=lambda one: one.name)
        return user

    def drop_user(self, name: str) -> bool:
        """Remove a user; returns whether there was one. As whom their jobs run stays known: they may go on."""
        with self.accounts:
            user = self.find_user(name)
            if user is None:
                return False
            with self.begin() as connection:
                connection.execute(USERS.delete().where(USERS.c.name == name))
                upsert(connection, FORMER_USERS, "id", [{"id": user.id, "name": name, "run_as": user.run_as}])
            self._users = [one for one in self.users() if one.name != name]
        return True

    def remember_owner(self, owner: str, name: str, run_as: str | None) -> None:
        """Know as whom the jobs of somebody run who is no user here; one who is stays as they are."""
        if self.find_owner(owner) is None:
            with self.begin() as connection:
                upsert(connection, FORMER_USERS, "id", [{"id": owner, "name": name, "run_as": run_as}])

    def projects(self) -> list[ProjectRecord]:
        """The groups of users that have limits of their own."""
        with self.engine.connect() as connection:
            return [
                ProjectRecord(**row._mapping) for row in connection.execute(select(PROJECTS).order_by(PROJECTS.c.name))
            ]

    def find_project(self, name: str) -> ProjectRecord | None:
        """The project of a name."""
        return next((one for one in self.projects() if one.name == name), None)

    def put_project(self, project: ProjectRecord) -> None:
        """Add a project, or change its limits."""
        with self.begin() as connection:
            upsert(connection, PROJECTS, "name", [write_fields(project)])

    def drop_project(self, name: str) -> bool:
        """Remove a project; returns whether there was one."""
        with self.begin() as connection:
            return bool(connection.execute(PROJECTS.delete().where(PROJECTS.c.name == name)).rowcount)
