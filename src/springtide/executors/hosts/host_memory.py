"""Folders in this host's memory, one for each start of a job: its processes keep copies of their state there.

A start finds the copy of the one before it, and no other's: where the job has been elsewhere meanwhile, what is left
here is of the past. What that start did not take up goes when it begins, or a while after the job has left; what an
agent has left that was killed goes when another one of this user begins.
"""

import contextlib
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Collection
from pathlib import Path
from typing import IO

from springtide.executors.hosts.host_messages import OpenStart
from springtide.executors.local.paths import try_lock
from springtide.training.settings import Settings, write_settings

#: A file system in memory.
ROOT = Path("/dev/shm")
#: How long a job's copies stay when no start of it is here.
KEPT_S = 600.0
#: Held by the agent that a folder belongs to.
LOCK = "agent.lock"
#: A folder this young may be of an agent that has not taken its lock yet.
YOUNG_S = 60.0


class HostMemory:
    """The folders of one agent; none where there is no file system in memory that it can use."""

    def __init__(self, mark: str, root: Path = ROOT) -> None:
        self.folder = root / f"springtide-{os.getuid()}-{mark}"
        self.lock: IO[str] | None = None
        self.is_usable = self.make()
        #: When a start of a job was last here, by the folder of the job.
        self.seen_s: dict[Path, float] = {}

    def make(self) -> bool:
        """Have an empty folder that is ours alone; what an agent before us left is of no use."""
        self.close()
        remove_forsaken(self.folder.parent)
        try:
            self.folder.mkdir(mode=0o700)  # somebody else's of this name fails here
            self.lock = try_lock(self.folder / LOCK)
        except OSError:
            return False
        return self.lock is not None

    def open(self, order: OpenStart, now_s: float) -> dict[str, str]:
        """The variables that name the folders of a start and of the one before it; those of older starts go."""
        if not self.is_usable or not order.spec.elastic or order.spec.run_as is not None:
            return {}
        job = self.folder / hash_name(order.job)
        own, before = (job / hash_name(start) for start in (order.start, order.before))
        for other in job.glob("*"):
            if other not in (own, before):
                shutil.rmtree(other, ignore_errors=True)
        self.seen_s[job] = now_s
        past = before if order.before else None
        return write_settings(Settings(memory_dir=own, memory_before=past, memory_heard=order.heard))

    def sweep(self, jobs: Collection[str], now_s: float) -> None:
        """Remove what jobs have left that are here no more; `jobs` are those that are."""
        self.seen_s.update({self.folder / hash_name(job): now_s for job in jobs})
        for folder in [folder for folder, seen_s in self.seen_s.items() if now_s - seen_s >= KEPT_S]:
            shutil.rmtree(folder, ignore_errors=True)
            del self.seen_s[folder]

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.lock is not None:
            self.lock.close()
            self.lock = None


def remove_forsaken(root: Path) -> None:
    """Remove the folders of agents of this user that were killed: their locks are free, and nobody else will."""
    for folder in root.glob(f"springtide-{os.getuid()}-*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()  # anybody may write to the root
            if is_ours and time.time() - found.st_mtime > YOUNG_S and (lock := try_lock(folder / LOCK)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                lock.close()


def hash_name(name: str) -> str:
    """A name for a folder: those of jobs and starts may hold anything."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]
