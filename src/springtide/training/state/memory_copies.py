"""Copies of a run's state in the memory of its hosts, newer than its last checkpoint: for the start after a lost host.

Every process of a data-parallel run has the parameters and the optimizers; what only one has, the contexts of its
logical workers, all are told at a step boundary. So on each host one process can keep all of it, in a file system in
memory and in the form of a checkpoint. Whichever host is lost, process 0 of the next start finds the last copy on one
that is left, checked as every checkpoint is. What is on disk counts as before: only a copy of a later step is used.
Of a sharded model no process has all, and none is kept.
"""

import contextlib
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from springtide.errors import CheckpointError
from springtide.training.group.groups import share_trees
from springtide.training.settings import Settings
from springtide.training.state import run_state, state_tree
from springtide.training.state.checkpoints import Checkpoints, Facts, Saved

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

#: A copy is made after so many seconds, but not before so many times those that training waited for the last one, and
#: that its writer took of a processor.
EVERY_S, WAITED_TIMES, WRITTEN_TIMES = 2.0, 100.0, 20.0
#: Copies that are kept: nobody may have heard of the last one's step. And how often a state lies in memory while
#: another is written: these, that one, and what it is written from.
KEPT = 2
PLACES = KEPT + 2
#: The most that these may take of the memory that is free, and of the file system in memory.
MOST_SHARE = 0.25
MEMORY, MEMBERSHIP, MOUNTS = Path("/proc/meminfo"), Path("/proc/self/cgroup"), Path("/proc/self/mounts")


class MemoryCopies:
    """The copies of one process: it is asked whether one is due if it is of rank 0, and keeps them for its host."""

    def __init__(self, settings: Settings) -> None:
        self.folder, self.before = settings.memory_dir, settings.memory_before
        self.is_on = self.folder is not None and settings.checkpoint_every_s > 0
        self.copies: Checkpoints | None = None
        self.began_s = time.monotonic()
        self.waited_s = self.written_s = 0.0
        #: For which generation it was found who keeps, and whether this process does.
        self.generation = -1
        self.keeps = False

    def is_due(self, now_s: float) -> bool:
        """Whether a copy is to be made at this boundary."""
        if not self.is_on:
            return False
        if self.copies is not None and self.copies.is_busy:
            self.written_s = now_s - self.began_s
            return False
        pause_s = max(EVERY_S, WAITED_TIMES * self.waited_s, WRITTEN_TIMES * self.written_s)
        return now_s - self.began_s >= pause_s

    def keep(self, run: "ElasticRun") -> None:
        """Copy the state of this boundary, on every host: a collective of all processes, whether or not they keep."""
        self.began_s = time.monotonic()
        self.find_keeper(run)
        if run.group is not None:
            run.divergence.compare(run)  # as before every checkpoint: what differs is not to be resumed from
        contexts = run_state.share_contexts(run)
        if run.is_main:
            run.tracking.sync()
        if self.keeps and self.is_on:
            self.save(run_state.capture(run, contexts), run.position.step, run.facts)
        self.waited_s, self.written_s = time.monotonic() - self.began_s, 0.0

    def find_keeper(self, run: "ElasticRun") -> None:
        """Whether this process is the first of its host, asked once in each generation."""
        if self.generation == run.generation:
            return
        own = str(self.folder or "")
        hosts = [own] if run.group is None else share_trees(run.group, own, run.device)
        self.keeps = bool(own) and hosts.index(own) == run.rank
        self.generation = run.generation

    def save(self, state: dict[str, Any], step: int, facts: Facts) -> None:
        """Write a copy behind training's back; where there is no room, or it fails, there are none from then on."""
        assert self.folder is not None
        try:
            check_room(measure(state), self.folder)
            if self.copies is None:
                self.copies = Checkpoints(self.folder, KEPT)
            if self.copies.is_busy:
                return
            if self.copies.names():
                self.drop_past()
            self.copies.save(state, step, facts)
        except (CheckpointError, OSError) as error:
            print(f"springtide: no copy of the state is kept in this host's memory: {error}", file=sys.stderr)
            self.forget()

    def forget(self) -> None:
        """Keep none any more."""
        self.is_on = False
        if self.copies is not None:
            if self.copies.writer is not None:
                self.copies.writer.join()
            self.copies = None
        if self.keeps and self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.drop_past()

    def drop_past(self) -> None:
        """Remove what the start before this one has left: there is something newer."""
        if self.before is not None:
            shutil.rmtree(self.before, ignore_errors=True)
            self.before = None


def measure(state: dict[str, Any]) -> int:
    """The bytes of a state's tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in state_tree.take_apart(state)[1].values())


def check_room(size: int, folder: Path) -> None:
    """Refuse copies that would take memory from the job, or a small file system in memory from its data loaders."""
    usage = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists()))
    room = min(usage.total, read_available())
    if PLACES * size > MOST_SHARE * room or PLACES * size > usage.free:
        raise CheckpointError(
            f"{PLACES} x {size:,} bytes are more than {MOST_SHARE:.0%} of the {room:,} bytes that are there for it; "
            "a lost host costs the steps since the last checkpoint (checkpoint.every)"
        )


def read_available() -> int:
    """Bytes of memory that this process could have now; 0 where nobody says."""
    try:
        rows = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines())
        return min(int(rows["MemAvailable"].split()[0]) * 1024, *read_group_room())
    except (OSError, ValueError, KeyError, IndexError):
        return 0


def read_group_room() -> list[int]:
    """Bytes that the control groups of this process (cgroup v2) have left, the job's own limit among them."""
    rows = [line.removeprefix("0::") for line in MEMBERSHIP.read_text().splitlines() if line.startswith("0::")]
    mounts = [line.split() for line in MOUNTS.read_text().splitlines()]
    roots = [Path(words[1]) for words in mounts if words[2] == "cgroup2"]
    room = [sys.maxsize]
    for group in [root / row.strip("/") for root in roots for row in rows]:
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # a group without a limit says: max
                limit = int((folder / "memory.max").read_text())
                room.append(max(0, limit - int((folder / "memory.current").read_text())))
    return room


def load_newer(settings: Settings, saved_step: int, facts: Facts) -> Saved | None:
    """The last copy that the start before this one left in this host's memory, if it is whole and of a later step.

    Those of steps of which nobody heard are left out: what the lost host had recorded by then did not arrive, and is
    recorded when the steps are taken again.
    """
    folder = settings.memory_before
    if folder is None or not folder.is_dir():
        return None
    copies = Checkpoints(folder, KEPT)
    try:
        for name in copies.names():
            if name.step > settings.memory_heard:
                copies.remove(name)
        found = copies.load(facts, settings.allow_code_change) if copies.names() else None
        return found if found is not None and found.step > saved_step else None
    except (CheckpointError, OSError) as error:
        print(f"springtide: the copy in this host's memory is not used: {error}", file=sys.stderr)
        return None
