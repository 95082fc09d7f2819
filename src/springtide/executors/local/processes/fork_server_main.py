"""The fork server: a process that has imported torch and forks training processes in milliseconds instead of seconds.

It calls its agent on a Unix socket and answers JSON lines: a request names script, arguments, environment, folder and
output files; the answers are the child's pid, and later its exit, after which nothing of the child is left: a child's
own processes end with it, even daemons. Run as a program (`SOCKET`), it serves all jobs of an interpreter. Run
as a script by such a server (`SOCKET FOLDER MODULE[:NAME,...] ...`), it has imported what a job's script imports and
serves that one job. It never touches CUDA, runs no operator and starts no thread, so that a child is as good as a fresh
process; if an import does, it refuses to serve, unless the library that has started it takes care of forks. Linux and
macOS.
"""

import atexit
import contextlib
import ctypes
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch._dynamo  # what an optimizer's first call imports, for seconds
import torch.distributed
import torch.utils.data

from springtide.errors import SpringtideError
from springtide.executors.local.processes.fences import open_watch
from springtide.executors.local.processes.read_only import forbid_writing
from springtide.executors.local.processes.stray_processes import adopt_orphans, end_orphans, list_children
from springtide.training import ddp_run, elastic_run, run
from springtide.training.determinism import cuda
from springtide.training.group import groups

PRELOADED = (torch._dynamo, torch.distributed, torch.utils.data, elastic_run, ddp_run, run)
#: The exit code of a server whose children would not be as good as fresh processes.
UNFIT = 70
#: How long a server that ends waits for what it has killed.
END_S = 2.0
#: How long a fork that is only tried may take.
TRIED_S = 5.0
#: Threads that a child does without: jemalloc's, which pyarrow has, only gives memory back to the system.
DISPENSABLE = ("jemalloc_bg_thd",)
#: How often a server with guests looks at the lease that it was told of.
LOOK_S = 0.2
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15


class ForkServer:
    """Forks on request, and tells how its children end; they end with it at the latest."""

    def __init__(self, path: Path) -> None:
        self.fence = open_watch(os.environ)
        adopt_orphans()
        #: What was started while importing is not a child's.
        self.spared = list_children()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.socket, selectors.EVENT_READ, self.read)
        self.children: set[int] = set()
        #: Those of them that are no servers.
        self.guests: set[int] = set()
        self.pending = b""
        self.open = True
        self.wake_read, self.wake_write = socket.socketpair()
        self.wake_write.setblocking(False)
        self.selector.register(self.wake_read, selectors.EVENT_READ, self.reap)

    def serve(self) -> None:
        """Answer until the agent has gone, then end the children: nobody else would."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.wake_write.fileno())
        while self.open:
            for key, _ in self.selector.select(LOOK_S if self.fence is not None and self.guests else None):
                key.data()
            if self.guests and self.fence is not None and self.fence.is_over:
                self.end_guests()
        for pid in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.end_all()

    def end_guests(self) -> None:
        """End what runs for a lead that counts it as gone soon; that it has ended is told as ever."""
        print(f"springtide: the lease is over, {len(self.guests)} processes end", file=sys.stderr, flush=True)
        for pid in self.guests:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.guests.clear()

    def end_all(self) -> None:
        """Wait a moment until the children and what they have left behind are gone."""
        until_s = time.monotonic() + END_S
        while end_orphans(self.spared) and time.monotonic() < until_s:
            time.sleep(0.01)

    def read(self) -> None:
        """Answer the whole requests that have come in."""
        try:
            data = self.socket.recv(1 << 16)
        except OSError:
            data = b""
        self.open = bool(data)
        *requests, self.pending = (self.pending + data).split(b"\n")
        for request in requests:
            self.answer(json.loads(request))

    def answer(self, request: dict[str, Any]) -> None:
        """Fork a child for a request and send back its pid."""
        pid = os.fork()
        if pid == 0:
            self.become(request)
        self.children.add(pid)
        if Path(request["script"]).name != Path(__file__).name:
            self.guests.add(pid)
        send(self.socket, {"pid": pid, "process": request["process"]})

    def become(self, request: dict[str, Any]) -> None:
        """In the child: end with the server, let go of all that is its own, and run the script to its end."""
        end_with_parent()
        adopt_orphans()
        name_process(request["process"])
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for held in (self.socket, self.wake_read, self.wake_write):
            held.close()
        self.selector.close()
        os._exit(run_script(request))

    def reap(self) -> None:
        """Tell of children that have ended, when what they have left behind has been ended too."""
        self.wake_read.recv(1 << 12)
        ended: dict[int, int] = {}
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                ended[found[0]] = found[1]
        known = self.children & ended.keys()
        self.children -= known
        self.guests -= known
        end_orphans(self.children | self.spared)
        for pid in known:
            send(self.socket, {"exited": pid, "code": os.waitstatus_to_exitcode(ended[pid])})


def send(sock: socket.socket, message: dict[str, Any]) -> None:
    """Send a JSON line; an agent that has just gone is noticed at the next read."""
    with contextlib.suppress(OSError):
        sock.sendall(json.dumps(message).encode() + b"\n")


def run_script(request: dict[str, Any]) -> int:
    """Run a script as `python script arguments` would, and return its exit code."""
    script = str(request["script"])
    os.chdir(request["folder"])
    redirect(request)
    refused = forbid_writing(request.get("read_only", ()), request.get("own", ()))
    if refused:
        print(f"springtide: this job could write to its inputs: {refused}", file=sys.stderr)
    if "notice" in request:
        print(f"springtide: {request['notice']}", file=sys.stderr)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # what an import of ours has asked for is not this job's TMPDIR
    sys.argv = [script, *request["arguments"]]
    sys.path[0] = str(Path(script).resolve().parent)
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)  # as an interpreter does: sys.exit("no data in /data")
    except SpringtideError as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    except BaseException:
        traceback.print_exc()
        code = 1
    end_script()
    return code


def end_script() -> None:
    """Wait for the script's threads and call what it registered for its end, as an interpreter does; then flush.

    Only an interpreter that ends needs `groups.wait_for_threads`, and this one is left by `os._exit`.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit.unregister(groups.wait_for_threads)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()


def redirect(request: dict[str, Any]) -> None:
    """Send standard output and error to the files of the request."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        handle = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(handle, number)
        os.close(handle)


def import_ahead(modules: Iterable[str]) -> bool:
    """Import what can be imported, and return whether forking is still safe: no thread started, CUDA asleep.

    What cannot be imported, the script will meet itself.
    """
    before = count_threads()
    for one in modules:
        module, _, names = one.partition(":")
        wanted = names.split(",") if names else []
        try:
            found = __import__(module, fromlist=wanted)  # which brings modules of a package
            for name in wanted:
                getattr(found, name, None)  # and this what is behind a name
        except Exception as error:
            print(f"springtide: {one} was not imported ahead: {error!r}", file=sys.stderr)
    if count_threads() > before and not can_fork():
        return False
    return count_threads() <= before and not cuda.is_awake()


def can_fork() -> bool:
    """Fork for nothing: a library that knows of forks, as OpenBLAS does, ends its threads before and has them later.

    One that knows of them, and waits in the child for what has gone, makes it hang; such a server forks for nobody.
    """
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    until_s = time.monotonic() + TRIED_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > until_s:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return False
        time.sleep(0.001)
    return True


def count_threads() -> int:
    """The threads of this process, those of libraries included where the system lists them, that a fork would lose."""
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        return threading.active_count()
    names = []
    for one in tasks.glob("*/comm"):
        with contextlib.suppress(OSError):  # it has ended by now
            names.append(one.read_text().strip())
    return len([name for name in names if name not in DISPENSABLE])


def name_process(label: str) -> None:
    """Let `ps -e` and `top` show what this process is (Linux): of `JOB/START/p0` the first 15 letters of `p0 JOB`."""
    parts = label.split("/")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, " ".join([parts[-1], *parts[-3:-2]]).encode()[:15])


def end_with_parent() -> None:
    """Have this process killed when its parent ends, even if the parent is killed itself (Linux)."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(-signal.SIGKILL)


def main() -> None:
    """Serve on the socket that is the first argument; further arguments: the script's folder, and modules."""
    path, *rest = sys.argv[1:]
    if rest:
        sys.path[0] = rest[0]
    if not import_ahead(rest[1:]):
        print("springtide: importing ahead started threads or CUDA; processes import for themselves", file=sys.stderr)
        sys.stderr.flush()
        os._exit(UNFIT)  # a usual end would wait for the threads that make it unfit
    gc.collect()
    gc.freeze()
    ForkServer(Path(path)).serve()


if __name__ == "__main__":
    main()
