"""A fork server whose children end with it, and which may import more than torch before it forks.

Run as a program, it serves all jobs of an interpreter. Run as a script by such a server, with the names of the
packages that a job's script imports, it serves that one job: its next processes start without importing them again.
It refuses to serve if an import has started a thread, which a fork would lose, or has woken CUDA.
"""

import ctypes
import gc
import os
import signal
import sys
from pathlib import Path
from typing import Any

from springtide.training.forking.forkserver import ForkServer, import_ahead

#: The exit code of a nursery that would make bad children.
UNFIT = 70
PR_SET_PDEATHSIG = 1


class JobForkServer(ForkServer):
    """A fork server whose children end with it, where the system can do that (Linux)."""

    def become(self, request: dict[str, Any]) -> None:
        """In the child: end with the parent, then run the script."""
        end_with_parent()
        super().become(request)


def end_with_parent() -> None:
    """Have this process killed when its parent ends, even if the parent is killed itself."""
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
        raise SystemExit(UNFIT)
    gc.collect()
    gc.freeze()
    JobForkServer(Path(path)).serve()


if __name__ == "__main__":
    main()
