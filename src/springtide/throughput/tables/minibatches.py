"""Reads tables of mini-batch seconds by application, batch and device type, the form of EasyScale's measurements.

One CSV file, `application,batch_per_worker,device_type,seconds_per_minibatch`, in any order of columns; the optional
column `most_workers` is what the memory of a device holds. An empty number of seconds says that the model does not fit
on that type at all. What a job makes of such seconds is settled by `heterogeneous`.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

from springtide.errors import ProfileError
from springtide.throughput.heterogeneous import UNLIMITED, DeviceSpeed
from springtide.throughput.tables.csv_rows import read_rows

COLUMNS = ("application", "batch_per_worker", "device_type", "seconds_per_minibatch")
MEMORY_COLUMN = "most_workers"


@dataclass(frozen=True, slots=True)
class Minibatches:
    """Device speeds by (application, batch per worker) and device type; None on a type that cannot hold the model."""

    origin: str
    table: Mapping[tuple[str, int], Mapping[str, DeviceSpeed | None]]

    def speeds(self, application: str, batch: int, device_types: Iterable[str]) -> dict[str, DeviceSpeed]:
        """The speeds on each of these types that can hold the model; every type must have been measured."""
        rows = self.table.get((application, batch))
        if rows is None:
            raise ProfileError(self._explain_missing(application, batch))
        missing = [device_type for device_type in device_types if device_type not in rows]
        if missing:
            raise ProfileError(
                f"{application} with batch {batch} has no speed on device type {missing[0]!r} in {self.origin}, "
                f"only on {', '.join(rows)}; run `springtide profile` with its script on such a device and add the row "
                f"'{application},{batch},{missing[0]},SECONDS', or leave the type out of the cluster"
            )
        return {device_type: speed for device_type in device_types if (speed := rows[device_type]) is not None}

    def _explain_missing(self, application: str, batch: int) -> str:
        batches = sorted(known for name, known in self.table if name == application)
        if batches:
            known = ", ".join(map(str, batches))
            return f"{application} has no mini-batch seconds for batch {batch} in {self.origin}; it has for {known}"
        names = ", ".join(sorted({name for name, _ in self.table}))
        return f"{application!r} has no mini-batch seconds in {self.origin}; there are: {names}"


def find_minibatches(folder: Path | None) -> Path | None:
    """The table in a folder of profiles, or the file itself; None if it is not one of mini-batch seconds."""
    if folder is None:
        return None
    candidates = [folder] if folder.is_file() else sorted(folder.glob("*.csv"))
    return next((path for path in candidates if _has_header(path)), None)


def _has_header(path: Path) -> bool:
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            header = next(csv.reader(lines), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    return set(COLUMNS) <= {name.strip() for name in header}


def read_minibatches(path: Path, time_scale: float = 1.0) -> Minibatches:
    """The table of one file, every number of seconds multiplied by `time_scale`."""
    table: dict[tuple[str, int], dict[str, DeviceSpeed | None]] = {}
    for where, row in read_rows(path, COLUMNS, what="profile"):
        application, device_type, batch, speed = _read_row(where, row, time_scale)
        table.setdefault((application, batch), {})[device_type] = speed
    if not table:
        raise ProfileError(f"profile {path} holds no row; it needs at least one below its header")
    return Minibatches(str(path), table)


def _read_row(where: str, row: Mapping[str, str], time_scale: float) -> tuple[str, str, int, DeviceSpeed | None]:
    application, batch, device_type, seconds = (row[column] for column in COLUMNS)
    if not application or not device_type:
        raise ProfileError(f"{where}: application {application!r} and device_type {device_type!r} must both be named")
    workers = row.get(MEMORY_COLUMN, "")
    most = int(_read_positive(where, MEMORY_COLUMN, workers)) if workers else UNLIMITED
    size = int(_read_positive(where, COLUMNS[1], batch))
    if not seconds:
        return application, device_type.lower(), size, None
    return (
        application,
        device_type.lower(),
        size,
        DeviceSpeed(_read_positive(where, COLUMNS[3], seconds) * time_scale, most),
    )


def _read_positive(where: str, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < inf:
        raise ProfileError(f"{where}: {column} {text!r} must be a positive number")
    return value
