"""A server: one reconciler thread and one HTTP application, on this machine's loopback unless told otherwise.

Runs in the foreground (`serve`) or detached (`start_background`). One per state directory, held by a lock.
"""

import json
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import uvicorn

from springtide import __version__
from springtide.control.api.guard import LOCAL_NAMES, ensure_owner
from springtide.control.api.http_lines import bound_lines
from springtide.control.api.routes import AddPages, build_app
from springtide.control.api.sessions import Pulse
from springtide.control.clock import SystemClocks
from springtide.control.executor_factory import ExecutorHandle, open_executor
from springtide.control.rent_quotes import read_clouds
from springtide.control.scheduling.context import ServerOptions
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.server_config import read_config
from springtide.control.server_log import set_up_logging
from springtide.control.storage.database_checks import check_database
from springtide.control.storage.housekeeping import keep_house
from springtide.control.storage.job_manifests import ManifestKeeper
from springtide.control.storage.orphans import check_not_lost
from springtide.control.storage.state_dir import StateDir, read_address, write_private
from springtide.control.storage.store import Store
from springtide.errors import InputError, StateError
from springtide.executors.local.daemon import is_alive, start_detached
from springtide.executors.local.jobs.worker_logs import read_tail
from springtide.executors.local.paths import try_lock
from springtide.policies import find_policy

USUAL_PORT = 8410
START_S = 60.0
PROCESS = "springtide.dashboard.server_process"  # a server with its pages, of which nothing here knows more
# Whoever comes back from the disk waits this long for the interpreter while the other thread computes; 5 ms is usual,
# and a commit comes back several times.
SWITCH_S = 0.001
GOODBYE_S = 5
OTHER_FILES = 256  # beside lines to clients: database, logs, the executor, uploads
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


class Server:
    """A running control plane."""

    def __init__(self, settings: ServerSettings, engine: ExecutorHandle, add_pages: AddPages | None = None) -> None:
        self.settings = settings
        self.engine = engine
        state_dir = settings.state_dir
        self.store = open_store(settings)
        self.manifests = ManifestKeeper(state_dir, self.store)
        self.owner = ensure_owner(self.store, state_dir)
        state_dir.let_through(any(user.run_as is not None for user in self.store.users()))
        state_dir.note_database(settings.database)
        self.reconciler = Reconciler(
            self.store, engine.executor, engine.inventory, state_dir, SystemClocks(), settings.options
        )
        self.stop_all = False
        names = frozenset({*LOCAL_NAMES, settings.listening.host.lower(), *settings.listening.names})
        pulse = Pulse(self.store, lambda: self.http.should_exit)
        self.app, self.sessions = build_app(self.reconciler, names, self.request_stop, pulse, add_pages)
        self.socket = bind(settings.listening)
        self.http = uvicorn.Server(configure(self.app, settings.options))
        self.thread = threading.Thread(target=self.reconciler.run, name="reconciler")
        self.ended = threading.Event()
        rounds = (state_dir, self.store, self.reconciler.context.clock.now_s, settings.options.keep_days, self.ended)
        self.housekeeper = threading.Thread(target=keep_house, args=rounds, name="housekeeper")

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def request_stop(self) -> None:
        """End the server and everything it started, soon."""
        self.stop_all = True
        self.http.should_exit = True

    def run(self) -> None:
        """Serve until told to stop."""
        self.manifests.start()
        self.thread.start()
        self.housekeeper.start()
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
        self.manifests.close()
        if self.stop_all:
            self.engine.close()
        self.settings.state_dir.address.unlink(missing_ok=True)
        self.socket.close()
        self.store.close()


def open_store(settings: ServerSettings) -> Store:
    """The store of a server; not one that is damaged, nor one that has lost the jobs that are here."""
    state_dir = settings.state_dir
    if settings.database is None:
        check_database(state_dir.database)
    store = Store(settings.database or f"sqlite:///{state_dir.database}")
    try:
        if not settings.keep_orphans:
            check_not_lost(state_dir, store)
    except BaseException:
        store.close()
        raise
    return store


def configure(app: Any, options: ServerOptions) -> uvicorn.Config:
    """How HTTP is spoken: on so many lines, none of which is waited for at the end for long."""
    lines = bound_lines(options.most_connections)
    return uvicorn.Config(
        app,
        http=lines,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=GOODBYE_S,
    )


def make_descriptors(options: ServerOptions) -> None:
    """See that this process may open as many files as it has lines, and then some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.most_connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            raise InputError(
                f"most_connections is {options.most_connections}, but this process may open only {hard} files; "
                f"set it to at most {hard - OTHER_FILES} in server.yaml, or raise the limit (ulimit -n)"
            )


def bind(listening: Listening) -> socket.socket:
    """A listening socket: the port asked for, or the usual one, or any that is free."""
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    ports = (USUAL_PORT, 0) if listening.port is None else (listening.port,)
    for port in ports:
        # asyncio turns Nagle's delay of 40 ms off only where the protocol is named
        line = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            line.bind((listening.host, port))
            line.listen(1024)
            return line
        except OSError as error:
            line.close()
            reason = error.strerror
    raise InputError(f"cannot listen on {listening.host}:{ports[0]} ({reason}); choose another with --port")


@contextmanager
def hold_lock(state_dir: StateDir) -> Iterator[None]:
    """Keep a second server off this state directory for as long as the block runs."""
    lock = try_lock(state_dir.root / "server.lock")
    if lock is None:
        address = read_address(state_dir) or {}
        raise StateError(
            f"a server of {str(state_dir.root)!r} runs already ({address.get('url', 'starting')}); "
            "stop it with: springtide stop"
        )
    with lock:
        yield


def serve(settings: ServerSettings, announce: Callable[[str, str], None], add_pages: AddPages | None = None) -> None:
    """Run a server in this process until it is stopped; `announce` hears its address, and a path that signs in once."""
    state_dir = settings.state_dir.make()
    set_up_logging(settings.log)
    sys.setswitchinterval(SWITCH_S)
    with hold_lock(state_dir):
        settings = replace(settings, options=read_config(state_dir, settings.options))
        read_clouds(settings.options.clouds)
        make_descriptors(settings.options)
        # an unknown policy ends here, before an agent is started for nothing
        find_policy(settings.options.policy).load()
        engine = open_executor(settings.engine, state_dir, settings.devices, settings.options.nodes)
        server = Server(settings, engine, add_pages)
        announce(server.url, server.sessions.make_link(server.owner))
        server.run()


def start_background(state_dir: StateDir, arguments: tuple[str, ...] = ()) -> str:
    """Start a detached server; returns its address when it answers."""
    state_dir.make()
    command = [sys.executable, "-m", PROCESS, "--detach", "--home", str(state_dir.root), *arguments]
    # Request threads would keep a heap each.
    pid = start_detached(command, state_dir.log, {**os.environ, "MALLOC_ARENA_MAX": "2"})
    until_s = time.monotonic() + START_S
    while pid is not None and time.monotonic() < until_s:
        address = read_address(state_dir)
        if address is not None and is_answering(address["url"]):
            return str(address["url"])
        if not is_alive(pid):
            break
        time.sleep(0.05)
    last = "".join(read_tail(state_dir.log, lines=1)) or "nothing"
    raise StateError(f"the server did not start; its last words are in {state_dir.log}: {last}")


def is_answering(url: str) -> bool:
    """Whether a server answers at an address."""
    import httpx

    try:
        return httpx.get(f"{url}/healthz", timeout=2.0).status_code == 200
    except httpx.HTTPError:
        return False
