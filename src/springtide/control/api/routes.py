"""The HTTP API as one application: every route, the errors, and the guard in front.

The guard checks host, origin, body and token; the routes check the user, hand the work to the operations, and answer
with documents.
"""

from collections.abc import Callable
from typing import cast

from fastapi import FastAPI

from springtide import __version__
from springtide.control.api.api import Api
from springtide.control.api.board_routes import add_board_routes, add_history_routes
from springtide.control.api.change_routes import add_change_routes, add_submission_routes
from springtide.control.api.entrance.guard import Guard, Limiter, PageRules
from springtide.control.api.entrance.sessions import Pulse, Sessions, read_cookie
from springtide.control.api.error_replies import add_error_handlers
from springtide.control.api.inside_routes import add_inside_routes
from springtide.control.api.job_data.archive_routes import add_archive_routes
from springtide.control.api.job_data.array_routes import add_array_routes
from springtide.control.api.job_data.checkpoint_routes import add_checkpoint_routes
from springtide.control.api.job_data.file_routes import add_file_routes
from springtide.control.api.job_data.log_routes import add_log_routes
from springtide.control.api.job_data.receipt_routes import add_receipt_routes
from springtide.control.api.job_routes import add_job_routes
from springtide.control.api.platform.node_routes import add_node_routes
from springtide.control.api.platform.server_routes import add_health_routes, add_server_routes
from springtide.control.api.platform.usage_routes import add_usage_routes
from springtide.control.api.platform.user_routes import add_user_routes
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.storage.archives import find_most_body
from springtide.control.storage.records import UserRecord
from springtide.core.shared_types import Document

#: What adds pages for browsers to an application: they call it for its documents, and sign people in. It says what the
#: guard must know of them.
AddPages = Callable[[FastAPI, Sessions, Pulse], PageRules]


def make_app() -> FastAPI:
    """An application without routes; the framework's own pages of documentation load scripts from elsewhere."""
    return FastAPI(title="Springtide", version=__version__, docs_url=None, redoc_url=None)


def add_routes(app: FastAPI, api: Api) -> None:
    """All routes of the API."""
    add_job_routes(app, api)
    add_log_routes(app, api)
    add_submission_routes(app, api)
    add_change_routes(app, api)
    add_archive_routes(app, api)
    add_array_routes(app, api)
    add_checkpoint_routes(app, api)
    add_file_routes(app, api)
    add_inside_routes(app, api)
    add_receipt_routes(app, api)
    add_health_routes(app, api)
    add_node_routes(app, api)
    add_server_routes(app, api)
    add_user_routes(app, api)
    add_board_routes(app, api)
    add_history_routes(app, api)
    add_usage_routes(app, api)


def describe_api(add_more: Callable[[FastAPI], None]) -> Document:
    """The API with what others add, as an OpenAPI document; no server is behind it, so nothing of it can be called."""
    app = make_app()
    add_routes(app, cast(Api, None))
    add_more(app)
    return app.openapi()


def build_app(
    reconciler: Reconciler,
    hosts: frozenset[str],
    request_stop: Callable[[], None],
    pulse: Pulse,
    add_pages: AddPages | None = None,
) -> tuple[Guard, Sessions]:
    """The application behind its guard, and who is signed in."""
    app, api = make_app(), Api(reconciler, request_stop)
    add_routes(app, api)
    add_error_handlers(app)
    rules = PageRules() if add_pages is None else add_pages(app, api.sessions, pulse)
    options = reconciler.context.options
    changes, reads = Limiter(options.rate_per_s, options.burst), Limiter(options.reads_per_s, options.read_burst)
    api.sessions.changes = changes

    def find_session(cookie: str, host: str) -> UserRecord | None:
        secret = read_cookie(cookie, host)
        return api.sessions.find(secret) if secret else None

    most_archive_bytes = find_most_body(options.archive_limit_bytes)
    guard = Guard(app, reconciler.store, hosts, changes, reads, most_archive_bytes, find_session, rules)
    return guard, api.sessions
