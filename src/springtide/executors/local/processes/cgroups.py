"""A control group (cgroup v2) for each start of a job, where the agent may make one: all in it end together.

No process can leave it but root's own, whatever it does to its parents, session or environment. Where the memory and
pids controllers are ours to use, a job is held to its limits too: who passes its memory ends, alone. Elsewhere
`stray_processes` does what can be done without.
"""

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
MEMBERSHIP = Path("/proc/self/cgroup")
CONTROLLERS = ("memory", "pids")
#: Where the processes of our own service go in a group that systemd has handed to it.
SERVICE = "springtide-service"
#: By which systemd marks such a group (Delegate=yes): to everybody since version 251, before that to root.
DELEGATED = ("user.delegate", "trusted.delegate")
#: How often they are moved: one may start another meanwhile.
MOVES = 5
#: How long processes that were killed are waited for when leftovers are swept away.
SWEEP_S = 5.0


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """How many processes every job may have, where the system lets us say so; whether groups are used at all."""

    enabled: bool = True
    pids: int | None = 10_000


class ControlGroup:
    """One group: the processes of one start of a job, and all that they start."""

    def __init__(self, path: Path, pids: int | None = None, memory_bytes: int | None = None) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        self.limit("pids.max", pids)
        #: Whether its processes are held to their memory: there is a limit, and the kernel has taken it.
        self.holds_memory = self.limit("memory.max", memory_bytes)
        if self.holds_memory:
            self.limit("memory.swap.max", 0)  # else the limit would only mean: slower
        self.limit("memory.oom.group", 1)

    def limit(self, name: str, value: int | None) -> bool:
        """Set a limit, where its controller is ours to use; whether that was so."""
        if value is None or not (self.path / name).exists():
            return False
        try:
            (self.path / name).write_text(str(value))
        except OSError:
            return False
        return True

    def add(self, pid: int) -> None:
        """Put a process in; one that has ended already is none."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.procs").write_text(str(pid))

    def kill(self) -> None:
        """End all processes in it at once."""
        try:
            (self.path / "cgroup.kill").write_text("1")
        except OSError:  # before Linux 5.14
            for pid in self.list():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def list(self) -> list[int]:
        """The processes in it."""
        try:
            return [int(word) for word in (self.path / "cgroup.procs").read_text().split()]
        except OSError:
            return []

    @property
    def is_empty(self) -> bool:
        """Whether no process is in it, those that nobody has waited for left out."""
        try:
            return "populated 0" in (self.path / "cgroup.events").read_text()
        except OSError:
            return True

    @property
    def has_passed_memory(self) -> bool:
        """Whether a process in it was ended by the system because the group's own limit was reached.

        `oom_kill` alone counts those too that ended because the whole machine had no memory left.
        """
        with contextlib.suppress(OSError, ValueError):
            rows = (line.split() for line in (self.path / "memory.events").read_text().splitlines())
            counts = {name: int(count) for name, count in rows}
            return counts.get("oom", 0) > 0 and counts.get("oom_kill", 0) > 0
        return False

    def remove(self) -> None:
        """Remove the group; one that is not empty stays for the next sweep."""
        with contextlib.suppress(OSError):
            self.path.rmdir()


class ControlGroups:
    """The groups of one agent, in a group of their own."""

    def __init__(self, path: Path, limits: GroupLimits) -> None:
        self.path = path
        self.limits = limits

    def make(self, name: str, memory_bytes: int | None = None) -> ControlGroup:
        """A new group, held to so much memory; OSError if it cannot be made."""
        return ControlGroup(self.path / name, self.limits.pids, memory_bytes)

    @property
    def limits_memory(self) -> bool:
        """Whether a job can be held to its memory: the kernel has given us that controller."""
        with contextlib.suppress(OSError):
            return "memory" in (self.path / "cgroup.subtree_control").read_text().split()
        return False

    def sweep(self) -> int:
        """End what an agent before us has left in its groups, and remove them; how many processes there were."""
        groups = [ControlGroup(path) for path in self.path.iterdir() if path.is_dir()]
        count = sum(len(group.list()) for group in groups)
        until_s = time.monotonic() + SWEEP_S
        for group in groups:
            group.kill()
        while not all(group.is_empty for group in groups) and time.monotonic() < until_s:
            time.sleep(0.01)
        for group in groups:
            group.remove()
        return count

    def close(self) -> None:
        """End and remove everything."""
        self.sweep()
        with contextlib.suppress(OSError):
            self.path.rmdir()


def find_own_group() -> Path | None:
    """The folder of the control group in which we are; None where there is no cgroup v2."""
    try:
        mounts = [line.split() for line in MOUNTS.read_text().splitlines()]
        memberships = MEMBERSHIP.read_text().splitlines()
    except OSError:
        return None
    mounted = [words[4] for words in mounts if words[words.index("-") + 1] == "cgroup2"]
    ours = [line.removeprefix("0::") for line in memberships if line.startswith("0::")]
    return Path(mounted[0]) / ours[0].lstrip("/") if mounted and ours else None


def is_delegated(group: Path) -> bool:
    """Whether systemd has handed a group to our service, to be divided as we like."""
    for name in DELEGATED:
        with contextlib.suppress(OSError):
            return os.getxattr(group, name) == b"1"
    return False


def move_down(group: Path) -> None:
    """Put the processes of a group into one below it: the kernel limits no group beside processes of its parent."""
    below = ControlGroup(group / SERVICE)
    for _ in range(MOVES):
        pids = (group / "cgroup.procs").read_text().split()
        if not pids:
            return
        for pid in pids:
            below.add(int(pid))


def open_groups(mark: str, limits: GroupLimits) -> ControlGroups | None:
    """The groups for an agent of this mark; None where it may not make any, or could not end what is in them."""
    own = find_own_group()
    if own is None or not limits.enabled:
        return None
    if own.name == SERVICE:  # an agent before us has moved all of the service there
        own = own.parent
    elif is_delegated(own):
        with contextlib.suppress(OSError):
            move_down(own)
    path = own / f"springtide-{mark}"
    try:
        path.mkdir(exist_ok=True)
        if not os.access(path / "cgroup.procs", os.W_OK):
            return None
    except OSError:
        return None
    for parent in (own, path):
        for controller in CONTROLLERS:
            with contextlib.suppress(OSError):  # taken by cgroup v1, or there are processes in the group
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")
    return ControlGroups(path, limits)
