"""A server: one reconciler thread and one HTTP application, on this machine's loopback unless told otherwise.

Runs in the foreground (`serve`) or detached (`start_background`). One per state directory, held by a lock.
"""

import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import uvicorn
import yaml

from springtide import __version__
from springtide.control.api.guard import LOCAL_NAMES, ensure_owner
from springtide.control.api.routes import AddPages, build_app
from springtide.control.api.sessions import Pulse
from springtide.control.clock import SystemClocks
from springtide.control.executor_factory import ExecutorHandle, open_executor
from springtide.control.rent_quotes import read_clouds
from springtide.control.scheduling.context import ServerOptions
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.storage.housekeeping import keep_house
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
logger = logging.getLogger("springtide.server")


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens; port None means the usual one, or any other if that is taken."""

    host: str = "127.0.0.1"
    port: int | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All that a server is told."""

    state_dir: StateDir
    engine: str = "local"
    devices: str | None = None
    listening: Listening = field(default_factory=Listening)
    options: ServerOptions = field(default_factory=ServerOptions)
    database: str | None = None


class JsonFormatter(logging.Formatter):
    """Log records as JSON lines."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, Any] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class Server:
    """A running control plane."""

    def __init__(self, settings: ServerSettings, engine: ExecutorHandle, add_pages: AddPages | None = None) -> None:
        self.settings = settings
        self.engine = engine
        state_dir = settings.state_dir
        self.store = Store(settings.database or f"sqlite:///{state_dir.database}")
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
        config = uvicorn.Config(self.app, log_config=None, access_log=False, lifespan="off", ws="none")
        self.http = uvicorn.Server(config)
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
        if self.stop_all:
            self.engine.close()
        self.settings.state_dir.address.unlink(missing_ok=True)
        self.socket.close()
        self.store.close()


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
    set_up_logging()
    sys.setswitchinterval(SWITCH_S)
    with hold_lock(state_dir):
        settings = replace(settings, options=read_config(state_dir, settings.options))
        read_clouds(settings.options.clouds)
        # an unknown policy ends here, before an agent is started for nothing
        find_policy(settings.options.policy).load()
        engine = open_executor(settings.engine, state_dir, settings.devices, settings.options.nodes)
        server = Server(settings, engine, add_pages)
        announce(server.url, server.sessions.make_link(server.owner))
        server.run()


def set_up_logging() -> None:
    """JSON lines on stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def read_config(state_dir: StateDir, options: ServerOptions) -> ServerOptions:
    """The options with what `server.yaml` in the state directory says; what the command line changed stays."""
    if not state_dir.config.exists():
        return options
    try:
        told = yaml.safe_load(state_dir.config.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise InputError(f"{state_dir.config} cannot be read ({error})") from None
    known = set(ServerOptions.__dataclass_fields__)
    if not isinstance(told, dict) or not set(told) <= known:
        wrong = ", ".join(sorted(set(told) - known)) if isinstance(told, dict) else "no mapping"
        raise InputError(f"{state_dir.config}: {wrong} is not known; there are: {', '.join(sorted(known))}")
    standard = ServerOptions()
    changed = {key: value for key in known if (value := getattr(options, key)) != getattr(standard, key)}
    return replace(standard, **{**told, **changed})


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
