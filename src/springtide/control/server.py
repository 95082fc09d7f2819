"""A server: one reconciler thread and one HTTP application, on this machine's loopback unless told otherwise.

Runs in the foreground (`serve`) or detached (`control.background`). One per state directory, held by a lock.
"""

import json
import logging
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from springtide import __version__
from springtide.control.api.entrance.bounded_connections import bound_connections
from springtide.control.api.entrance.guard import LOCAL_NAMES
from springtide.control.api.entrance.sessions import Pulse
from springtide.control.api.entrance.tokens import ensure_owner
from springtide.control.api.routes import AddPages, build_app
from springtide.control.clock import SharedClocks, SystemClocks
from springtide.control.executor_factory import ExecutorHandle, check_memory_limit, choose_limits, open_executor
from springtide.control.memory_sweeps import shorten_sweeps
from springtide.control.notices.notice_decisions import tell_failure
from springtide.control.notices.notice_deliveries import MailServer
from springtide.control.notices.notifier import Notifier
from springtide.control.rent_quotes import read_clouds
from springtide.control.scheduling.loop.non_blocking_executor import NonBlockingExecutor
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.server_config import read_config
from springtide.control.server_log import set_up_logging
from springtide.control.standby import seek_lead
from springtide.control.storage.database.databases import is_file
from springtide.control.storage.housekeeping import keep_house
from springtide.control.storage.job_manifests import ManifestKeeper
from springtide.control.storage.leadership import Leadership
from springtide.control.storage.places.storage_checks import check_server_storage
from springtide.control.storage.places.stored_code import restore_code
from springtide.control.storage.records import NoticeRecord
from springtide.control.storage.state_dir import StateDir, read_address, write_private
from springtide.control.storage.store_opening import find_place, insist, open_store
from springtide.errors import InputError, SpringtideError, StateError
from springtide.executors.local.paths import try_lock
from springtide.policies import find_policy

USUAL_PORT = 8410
# A thread that comes back from the disk waits this long for the interpreter while another computes; 5 ms is usual,
# and a commit comes back several times.
SWITCH_S = 0.001
GOODBYE_S = 5
OTHER_FILES = 256  # beside connections of clients: database, logs, the executor, uploads
logger = logging.getLogger("springtide.server")


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens; port None means the usual one, or any other if that is taken."""

    host: str = "127.0.0.1"
    port: int | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.host.strip():
            raise InputError(
                "the host to listen on is empty, which would mean every network; write 0.0.0.0 if you mean that"
            )


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All that a server is told."""

    state_dir: StateDir
    engine: str = "local"
    devices: str | None = None
    listening: Listening = field(default_factory=Listening)
    options: ServerOptions = field(default_factory=ServerOptions)
    database: str | None = None
    #: Whether to serve although the database knows none of the jobs whose folders are here.
    keep_orphans: bool = False
    #: The file of a server in the background; None: stderr.
    log: Path | None = None
    #: Whether to wait for the end of another server of the same database, and to go on in its place.
    standby: bool = False
    #: Where the engine's cluster is.
    address: str = "auto"


class Server:
    """A running control plane."""

    def __init__(
        self,
        settings: ServerSettings,
        engine: ExecutorHandle,
        add_pages: AddPages | None = None,
        listener: socket.socket | None = None,
        leadership: Leadership | None = None,
    ) -> None:
        self.settings = settings
        self.engine = engine
        state_dir = replace(settings.state_dir, several_hosts=engine.several_hosts)
        self.leadership = leadership
        place = find_place(state_dir, settings.database)
        self.store = insist(partial(open_store, state_dir, settings.database, leadership, settings.keep_orphans), place)
        self.manifests = ManifestKeeper(state_dir, self.store)
        mail = MailServer(**settings.options.smtp) if settings.options.smtp else None
        self.notifier = Notifier(self.store, self.read_clock, mail, self.note_failed_notice)
        self.owner = insist(partial(ensure_owner, self.store, state_dir), place)
        state_dir.let_through(any(user.run_as is not None for user in self.store.users()))
        state_dir.note_database(settings.database)
        restore_code(state_dir, self.store.active_jobs(), settings.options.archive_limit_bytes)
        self.executor = NonBlockingExecutor(engine.executor)
        site = replace(engine.inventory, weights=settings.options.weights)
        clocks = SystemClocks() if leadership is None else SharedClocks(leadership.read_wall_s)
        parts = (self.store, self.executor, site, state_dir, clocks, settings.options, engine.stream)
        self.reconciler = insist(partial(Reconciler, *parts), place)  # which writes down where it goes on
        self.reconciler.health.others["notices"] = self.notifier.check
        self.stop_all = False
        names = frozenset({*LOCAL_NAMES, settings.listening.host.lower(), *settings.listening.names})
        most_readers = max(1, settings.options.most_connections // 2)
        pulse = Pulse(self.store, lambda: self.http.should_exit, most_readers)
        self.app, self.sessions = build_app(self.reconciler, names, self.request_stop, pulse, add_pages)
        self.socket = listener or bind(settings.listening)
        self.http = uvicorn.Server(configure(self.app, settings.options))
        self.thread = threading.Thread(target=self.reconciler.run, name="reconciler")
        self.ended = threading.Event()
        rounds = (state_dir, self.store, self.reconciler.context.clock.now_s, settings.options.keep_days, self.ended)
        self.housekeeper = threading.Thread(target=keep_house, args=rounds, name="housekeeper")

    @property
    def url(self) -> str:
        """Where it listens."""
        return tell_url(self.socket)

    def read_clock(self) -> float:
        """Platform time."""
        return self.reconciler.context.clock.now_s()

    def note_failed_notice(self, notice: NoticeRecord) -> None:
        """Let the owner of a job read in its events that somebody was not told of it; nobody waits for that here."""
        sentence = tell_failure(notice)
        self.reconciler.call(lambda: self.reconciler.context.staging.add_event("notice_failed", sentence, notice.job))

    def end_lost(self, why: str) -> None:
        """Another server has taken over: decide nothing more, and end. Jobs go on under the other one."""
        logger.error(why)
        self.reconciler.stop()
        self.http.should_exit = True

    def request_stop(self) -> None:
        """End the server and everything it started, soon."""
        self.stop_all = True
        self.http.should_exit = True

    def run(self) -> None:
        """Serve until told to stop."""
        self.manifests.start()
        self.notifier.start()
        self.thread.start()
        self.housekeeper.start()
        if self.leadership is not None:
            self.leadership.tell(self.end_lost)
        address = {"url": self.url, "pid": os.getpid(), "version": __version__}
        write_private(self.settings.state_dir.address, json.dumps(address) + "\n")
        logger.info("listening on %s, %d devices", self.url, self.engine.inventory.cluster.total)
        try:
            self.http.run(sockets=[self.socket])
        finally:
            self.close()

    def close(self) -> None:
        """End the loop, and with `stop_all` also every process it started."""
        self.reconciler.stop()
        self.ended.set()
        for thread in (self.thread, self.housekeeper):
            if thread.is_alive():
                thread.join()
        self.notifier.close()
        self.manifests.close()
        self.executor.close()
        if self.stop_all:
            self.end_executor()
        if (read_address(self.settings.state_dir) or {}).get("pid") == os.getpid():  # else one that took over is there
            self.settings.state_dir.address.unlink(missing_ok=True)
        self.socket.close()
        self.store.close()
        if self.leadership is not None:
            self.leadership.close()

    def end_executor(self) -> None:
        """End every process that was started; an executor that does not answer keeps nothing else from ending."""
        try:
            self.engine.close()
        except SpringtideError as error:
            logger.error("the server ends, but what it started may go on: %s", error)


def configure(app: Any, options: ServerOptions) -> uvicorn.Config:
    """How HTTP is spoken: on so many connections; at the end none is waited for long."""
    connections = bound_connections(options.most_connections, count_waiting(options))
    return uvicorn.Config(
        app,
        http=connections,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=GOODBYE_S,
    )


def make_descriptors(options: ServerOptions) -> None:
    """Let this process open a file for each connection, and then some; if it can, for waiting ones too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * options.most_connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < options.most_connections + OTHER_FILES:
            raise InputError(
                f"most_connections is {options.most_connections}, but this process may open only {hard} files; "
                f"set it to at most {hard - OTHER_FILES} in server.yaml, or raise the limit (ulimit -n)"
            )


def count_waiting(options: ServerOptions) -> int:
    """How many connections may wait until another is done: as many as are read, if there are files for them."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = (
        options.most_connections if soft == resource.RLIM_INFINITY else soft - OTHER_FILES - options.most_connections
    )
    return max(0, min(spare, options.most_connections))


def bind(listening: Listening) -> socket.socket:
    """A listening socket: the port asked for, or the usual one, or any that is free."""
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    ports = (USUAL_PORT, 0) if listening.port is None else (listening.port,)
    for port in ports:
        # asyncio turns Nagle's delay of 40 ms off only where the protocol is named
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((listening.host, port))
            listener.listen(1024)
            return listener
        except OSError as error:
            listener.close()
            reason = error.strerror
    raise InputError(f"cannot listen on {listening.host}:{ports[0]} ({reason}); choose another with --port")


def tell_url(listener: socket.socket) -> str:
    """The address of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextmanager
def hold_lock(state_dir: StateDir, beside: bool = False) -> Iterator[None]:
    """Keep a second server off this state directory for as long as the block runs.

    `beside`: it may be that the server whose place this one took is stopped, and still holds it.
    """
    lock = try_lock(state_dir.root / "server.lock")
    if lock is None and not beside:
        address = read_address(state_dir) or {}
        raise StateError(
            f"a server of {str(state_dir.root)!r} runs already ({address.get('url', 'starting')}); "
            "stop it with: springtide stop"
        )
    with lock or ExitStack():
        yield


def lead(settings: ServerSettings, listener: socket.socket) -> Leadership | None:
    """The lead of the database, once this server has it; None for one that is a file of one server."""
    if settings.database is None or is_file(settings.database):
        return None
    names = settings.listening.names
    url = tell_url(listener) if not names else f"http://{names[0]}:{listener.getsockname()[1]}"
    return seek_lead(settings.database, url, listener if settings.standby else None)


def serve(
    settings: ServerSettings,
    announce: Callable[[str, str], None],
    add_pages: AddPages | None = None,
    announce_standby: Callable[[str], None] = lambda url: None,
) -> None:
    """Run a server in this process until it is stopped; `announce` hears its address, and a path that signs in once.

    A standby says its address to `announce_standby`, and serves once it has the lead.
    """
    if settings.standby and (settings.database is None or is_file(settings.database)):
        raise InputError(
            "--standby needs a database that two servers reach; give both the same --database postgresql://..."
        )
    state_dir = settings.state_dir.make()
    set_up_logging(settings.log)
    sys.setswitchinterval(SWITCH_S)
    shorten_sweeps()
    with ExitStack() as stack:
        if not settings.standby:
            stack.enter_context(hold_lock(state_dir))
        settings = replace(settings, options=read_config(state_dir, settings.options))
        read_clouds(settings.options.clouds)
        if settings.options.storage is not None:
            check_server_storage(settings.options.storage)
            settings = replace(settings, state_dir=replace(state_dir, storage=settings.options.storage))
        if settings.options.most_memory is not None and settings.engine == "local":
            check_memory_limit(settings.options.most_memory)
        make_descriptors(settings.options)
        # an unknown policy ends here, before an agent is started for nothing
        find_policy(settings.options.policy).load()
        listener = bind(settings.listening)
        if settings.standby:
            announce_standby(tell_url(listener))
        leadership = lead(settings, listener)
        if leadership is not None:
            stack.callback(leadership.close)
        if settings.standby:
            stack.enter_context(hold_lock(state_dir, beside=True))
        options = settings.options
        limits = choose_limits(options) if settings.engine == "local" else None
        where = settings.devices, options.nodes, settings.address
        engine = open_executor(settings.engine, settings.state_dir, *where, limits)
        server = Server(settings, engine, add_pages, listener, leadership)
        announce(server.url, server.sessions.make_link(server.owner))
        server.run()
    if leadership is not None and leadership.lost:
        raise StateError(leadership.lost)
