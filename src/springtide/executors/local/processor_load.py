"""What others take of this machine's processors, and how much slower its devices are for that.

Seen from /proc, and so on Linux only: the time that the processors were busy, less what processes of ours have used.
Threads that wait for a processor use none, so the number of threads that want to run tells how much more is asked for
than is got. Time of niced processes does not count: they give way.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from springtide.executors.local.discovery import count_cores

PROC = Path("/proc")
WINDOW_S = 5.0
#: Windows that are remembered: a load counts from its second window on, and until it is in one of them only.
WINDOWS = 6
#: Between counts of the threads that want to run.
COUNT_S = 0.25
#: What others must use, in cores, for the crowd to be theirs too.
LEAST_USE = 0.5
#: Slowdowns this close are the same; smaller changes are not told.
SAME = 0.05


@dataclass(frozen=True, slots=True)
class ProcessorLoad:
    """What others ask for of a machine's `cores`, in cores; and how much longer work on all its devices takes."""

    cores: float
    outside: float
    slowdown: float


@dataclass(frozen=True, slots=True)
class BusyTimes:
    """Seconds that processors were busy since the machine started."""

    #: Of the processors that we may use, without niced processes.
    here_s: float
    #: Of all processors.
    everywhere_s: float
    processors: int


@dataclass(frozen=True, slots=True)
class ProcessorReading:
    """What the processors had done at a moment, and what of it was for processes of ours."""

    at_s: float
    busy: BusyTimes
    #: By the first process of each tree that is ours: one that came or went meanwhile tells nothing of a window.
    own_s: Mapping[int, float]

    def use_since(self, before: "ProcessorReading") -> float:
        """The cores that ours have used since an earlier reading."""
        both = self.own_s.keys() & before.own_s.keys()
        return sum(self.own_s[pid] - before.own_s[pid] for pid in both) / (self.at_s - before.at_s)


def find_slowdown(devices: int, cores: float, outside: float) -> float:
    """How much longer work on all devices takes beside others than without them, where all threads are served alike.

    (devices + outside) threads on so many cores, against devices threads on them: 1 while there are cores for all.
    """
    return max(1.0, (devices + outside) / cores) / max(1.0, devices / cores)


def find_demand(before: ProcessorReading, after: ProcessorReading, wanting: float) -> float:
    """The cores that others ask for; `wanting` is the mean number of threads that run or wait for a processor.

    Where more want to run than there are processors, all get the same part of what they want, so others want as much
    more than they get as all do. Too little use is not made larger by that: the kernel always has something to do, and
    the crowd may be ours.
    """
    seconds = after.at_s - before.at_s
    everywhere = (after.busy.everywhere_s - before.busy.everywhere_s) / seconds
    used = (after.busy.here_s - before.busy.here_s) / seconds - after.use_since(before)
    is_crowded = everywhere > 0 and wanting > after.busy.processors and used >= LEAST_USE
    crowding = wanting / everywhere if is_crowded else 1.0
    return max(0.0, used) * max(1.0, crowding)


def parse_busy(text: str, allowed: Collection[int], ticks_per_s: int) -> BusyTimes:
    """The busy times in /proc/stat; a line is `cpuN user nice system idle iowait irq softirq steal ...`."""
    here = everywhere = 0
    lines = [line.split() for line in text.splitlines() if line.startswith("cpu") and line[3:4].isdigit()]
    for words in lines:
        user, nice, system, _, _, irq, softirq, steal = map(int, words[1:9])
        busy = user + system + irq + softirq + steal
        everywhere += busy + nice
        here += busy if int(words[0][3:]) in allowed else 0
    return BusyTimes(here / ticks_per_s, everywhere / ticks_per_s, len(lines))


def parse_process(text: str) -> tuple[int, int]:
    """The parent of a process and its ticks, those of its children that have ended included, in /proc/PID/stat."""
    words = text.rpartition(")")[2].split()  # its name, in brackets, may hold anything
    return int(words[1]), sum(map(int, words[11:15]))


def add_trees(processes: Mapping[int, tuple[int, int]], roots: Collection[int]) -> dict[int, int]:
    """The ticks of each of these processes with all that descend from it; a tree within another counts for itself."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    return {root: add_tree(processes, children, root, roots) for root in roots if root in processes}


def add_tree(
    processes: Mapping[int, tuple[int, int]], children: Mapping[int, list[int]], root: int, roots: Collection[int]
) -> int:
    """The ticks of a process and of all that descend from it, other roots left out."""
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        total += processes[pid][1]
        waiting += [child for child in children.get(pid, ()) if child not in roots]
    return total


def read_processes() -> dict[int, tuple[int, int]]:
    """The parent and the ticks of every process that can be seen."""
    processes = {}
    for entry in os.scandir(PROC):
        if entry.name.isdigit():
            try:
                processes[int(entry.name)] = parse_process((PROC / entry.name / "stat").read_text())
            except (OSError, ValueError, IndexError):
                continue  # it has ended meanwhile
    return processes


def read_processors(roots: Collection[int]) -> ProcessorReading | None:
    """What the processors have done by now, and what for these processes and their descendants; None if unknown."""
    try:
        ticks_per_s = os.sysconf("SC_CLK_TCK")
        busy = parse_busy((PROC / "stat").read_text(), os.sched_getaffinity(0), ticks_per_s)
        own_s = {root: ticks / ticks_per_s for root, ticks in add_trees(read_processes(), set(roots)).items()}
        return ProcessorReading(time.monotonic(), busy, own_s)
    except (OSError, ValueError, AttributeError):  # another system than Linux
        return None


def count_wanting() -> int | None:
    """The threads that run or wait for a processor now, the one that asks left out; None if unknown."""
    try:
        return int((PROC / "loadavg").read_text().split()[3].partition("/")[0]) - 1
    except (OSError, ValueError, IndexError):
        return None


class LoadMeter:
    """Measures what others take, window by window, and tells when it has changed. Costs one look at /proc a window.

    `list_own` are the processes that are ours, each with all its descendants.
    """

    def __init__(self, devices: int, list_own: Callable[[], Collection[int]], window_s: float = WINDOW_S) -> None:
        self.devices = devices
        self.list_own = list_own
        self.window_s = window_s
        self.began = read_processors(list_own())
        self.counts: list[int] = []
        self.counted_s = 0.0
        self.demands: deque[float] = deque(maxlen=WINDOWS)
        self.reported: ProcessorLoad | None = None

    def look(self, now_s: float) -> ProcessorLoad | None:
        """Count, and once a window is over the load, if it is not what was told last."""
        if self.began is None:
            return None
        if now_s - self.counted_s >= COUNT_S:
            self.counted_s = now_s
            wanting = count_wanting()
            self.counts += [] if wanting is None else [wanting]
        if now_s - self.began.at_s < self.window_s:
            return None
        ended = read_processors(self.list_own())
        if ended is None:
            return None
        mean = sum(self.counts) / len(self.counts) if self.counts else 0.0
        demand, self.began, self.counts = find_demand(self.began, ended, mean), ended, []
        return self.judge(demand)

    def judge(self, demand: float) -> ProcessorLoad | None:
        """The load with the demand of one more window, if it is not what was told last.

        What counts is what two of the windows have reached: a burst is no load, and a load with gaps is one.
        """
        self.demands.append(demand)
        if len(self.demands) < 2:
            return None
        outside, cores = sorted(self.demands)[-2], float(count_cores())
        load = ProcessorLoad(cores, outside, find_slowdown(self.devices, cores, outside))
        if self.reported is not None and abs(load.slowdown - self.reported.slowdown) <= SAME * self.reported.slowdown:
            return None
        self.reported = load
        return load
