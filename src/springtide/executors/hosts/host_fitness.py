"""Whether this host can run jobs at all: one that cannot must not join, or every job that comes to it would be lost.

It is asked when the agent of the host begins. One whose host turns out to be unfit later leaves, and whoever started it
starts it again; then it is asked here whether that has changed.
"""

import errno
import shutil
import sys
from pathlib import Path

from springtide import __version__
from springtide.executors.hosts.lead_dialer import RefusedError
from springtide.executors.local.processes.fork_servers import find_own_versions

#: Sockets, pipes, logs and code of jobs need some room.
LEAST_FREE_BYTES = 64 << 20
#: What a job may meet that is no fault of its own, whichever file it was about.
NO_MEANS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def check_fitness(host: str, state_dir: Path) -> None:
    """Refuse to serve on a host without torch, or without room."""
    if not find_own_versions()["torch"]:
        raise RefusedError(
            f"host {host} has no torch in {sys.executable}: install springtide[train]=={__version__} there"
        )
    free = shutil.disk_usage(state_dir).free
    if free < LEAST_FREE_BYTES:
        raise RefusedError(
            f"host {host} has {free >> 20} MiB left in {state_dir}, and jobs need {LEAST_FREE_BYTES >> 20}: make room "
            "there, or set TMPDIR where its raylet starts"
        )


def is_hosts_trouble(error: Exception, state_dir: Path, own_disk: bool) -> bool:
    """Whether an error is the host's own trouble, so that the job that met it may run on another.

    A file that is not there, or not for us, may be the job's doing; a full disk may be the home's, which all hosts
    share, unless it was about this host's own (`own_disk`) or that has no room either.
    """
    if not isinstance(error, OSError):
        return isinstance(error, MemoryError)
    is_full = own_disk or shutil.disk_usage(state_dir).free < LEAST_FREE_BYTES
    return error.errno in NO_MEANS or (error.errno in NO_ROOM and is_full)
