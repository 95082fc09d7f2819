"""Where a figure's inputs lie: traces, profiles and measurements, each found or known to be absent.

A trace that is not at hand is replaced by a seeded synthetic one (`scenes`), which the figure must say. Every file that
is in the way is named with the reason; nothing is left out in silence.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

from springtide.errors import InputError
from springtide.simulator.traces import COLUMNS

# The cluster each public trace is replayed on: the size its figure is about.
CLUSTERS = {
    "195job": "16x8:a100",
    "elasticVpollux_e": "16x4:t4",
    "cluster01": "64x8:a100",
    "cluster02": "64x8:a100",
    "cluster03": "64x8:a100",
    "cluster04": "128x8:a100",
    "cluster05": "64x8:a100",
    "cluster06": "64x8:a100",
    "cluster07": "128x8:a100",
    "cluster08": "128x8:a100",
    "cluster09": "128x8:a100",
    "cluster10": "32x8:a100",
    "philly_103959": "32x8:a100",
}
EASYSCALE_COLUMNS = ("max_parallelism", "maxP")  # either is in the header of an EasyScale workload


@dataclass(frozen=True, slots=True)
class Sources:
    """The folders that were given; None is not given. `cluster` is for traces whose own is not known."""

    traces: Path | None = None
    profiles: Path | None = None
    measurements: Path | None = None
    cluster: str | None = None

    def find_trace(self, name: str) -> Path | None:
        """The file of a trace by its name, wherever it lies in the traces folder."""
        if self.traces is None:
            return None
        return next((path for path in sorted(self.traces.rglob(f"{name}.csv"))), None)


@dataclass(frozen=True, slots=True)
class Found:
    """Every usable trace with its cluster, and what is wrong with the other files."""

    traces: tuple[tuple[Path, str], ...]
    problems: tuple[str, ...]


def open_sources(
    data: Path | None, traces: Path | None = None, profiles: Path | None = None, cluster: str | None = None
) -> Sources:
    """The folders to read from: those named, else those found beneath `data`."""
    for what, folder in (("data", data), ("traces", traces), ("profiles", profiles)):
        if folder is not None and not folder.is_dir():
            raise InputError(f"--{what} {str(folder)!r} is not a folder; give an existing one, or leave the option out")
    if cluster is not None:
        from springtide.core.devices import parse_cluster

        parse_cluster(cluster)
    beneath = {name: _find_beneath(data, name) for name in ("traces", "profiles", "measurements")}
    if data is not None and not any(beneath.values()):
        raise InputError(f"--data {str(data)!r} holds none of {', '.join(f'{name}/' for name in beneath)}")
    return Sources(traces or beneath["traces"], profiles or beneath["profiles"], beneath["measurements"], cluster)


def _find_beneath(data: Path | None, name: str) -> Path | None:
    return data / name if data is not None and (data / name).is_dir() else None


def find_traces(sources: Sources) -> Found:
    """All deadline traces in the traces folder, in order of their names."""
    if sources.traces is None:
        return Found((), ())
    traces: list[tuple[Path, str]] = []
    problems: list[str] = []
    for path in sorted(sources.traces.rglob("*.csv"), key=lambda path: (path.stem, path)):
        cluster = CLUSTERS.get(path.stem, sources.cluster)
        reason = explain_foreign(path)
        if reason == "" and cluster is None:
            reason = "the cluster of this trace is not known; give one with --cluster NODESxGPUS:TYPE"
        if reason:
            problems.append(f"trace {path}: {reason}")
        elif reason is not None and cluster is not None:
            traces.append((path, cluster))
    return Found(tuple(traces), tuple(problems))


def explain_foreign(path: Path) -> str | None:
    """Why a file is no deadline trace; "" if it looks like one, None if it is a workload that other figures read."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            header = [cell.strip() for cell in next(csv.reader(lines), [])]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return f"is not a CSV text file ({error})"
    if any(cell in COLUMNS["submit"] for cell in header):
        return ""
    if any(cell in EASYSCALE_COLUMNS for cell in header):
        return None
    known = ", ".join(COLUMNS["submit"])
    return f"is not a trace: its header {','.join(header)[:80]!r} has no column of submission times ({known})"
