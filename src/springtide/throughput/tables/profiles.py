"""Reads measured speeds: tables of steps per second by global batch and number of devices.

A folder of tables describes one device type: `<model>.csv` with the header `global_batch_size,1,2,4,...` and one row
per batch. `nan`, an empty cell or 0 means not available. The package ships tables of its own (`data/README.md`
says how they were made). Fitting and extrapolating belong elsewhere: a share that is not in the table is not offered.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from pathlib import Path

from springtide.core.curves import Curve
from springtide.errors import ProfileError

PACKAGED = Path(__file__).parents[1] / "data"
BATCH_COLUMN = "global_batch_size"


@dataclass(frozen=True, slots=True)
class Profiles:
    """The curves of one device type by (model, global batch), and where they came from."""

    origin: str
    curves: Mapping[tuple[str, int], Curve]

    def curve(self, model: str, batch: int) -> Curve:
        """The measured curve of a model at a global batch."""
        curve = self.curves.get((model, batch))
        if curve is None:
            raise ProfileError(self._explain_missing(model, batch))
        return curve

    def _explain_missing(self, model: str, batch: int) -> str:
        batches = sorted(known for name, known in self.curves if name == model)
        if batches:
            return (
                f"model {model!r} has no profile for batch {batch} in {self.origin}; "
                f"it has one for {', '.join(map(str, batches))}"
            )
        models = sorted({name for name, _ in self.curves})
        return f"model {model!r} has no profile in {self.origin}; there are profiles of {', '.join(models)}"


def read_profiles(folder: Path | None, device_types: Sequence[str]) -> Profiles:
    """The curves for a cluster of these device types, from a user's folder or (None) from the package.

    On several types a job is taken to run as on the slowest of them, share by share, so that no plan is too bold.
    """
    tables = list(read_each(folder, device_types).values())
    return tables[0] if len(tables) == 1 else _take_slowest(tables)


def read_each(folder: Path | None, device_types: Sequence[str]) -> dict[str, Profiles]:
    """The curves on each of these device types, from a user's folder or (None) from the package."""
    return {one: _read_folder(_find_folder(folder, one)) for one in device_types}


def _find_folder(folder: Path | None, device_type: str) -> Path:
    root = PACKAGED if folder is None else folder
    if not root.is_dir():
        raise ProfileError(f"profiles {str(root)!r} is not a folder; give one that holds a folder per device type")
    folders = {entry.name.lower(): entry for entry in sorted(root.iterdir()) if entry.is_dir()}
    if device_type in folders:
        return folders[device_type]
    if any(root.glob("*.csv")):
        return root
    what = "packaged profiles" if folder is None else f"profiles {str(root)!r}"
    raise ProfileError(
        f"{what} hold nothing for device type {device_type!r}; there are: {', '.join(folders) or 'none'}"
        + ("; give your own with --profiles DIR" if folder is None else "")
    )


def _read_folder(folder: Path) -> Profiles:
    curves: dict[tuple[str, int], Curve] = {}
    for path in sorted(folder.glob("*.csv")):
        for batch, curve in read_table(path).items():
            curves[path.stem, batch] = curve
    if not curves:
        raise ProfileError(f"profiles {str(folder)!r} hold no table <model>.csv with a speed in it")
    origin = f"the packaged {folder.name} profiles" if folder.parent == PACKAGED else str(folder)
    return Profiles(origin, curves)


def read_table(path: Path) -> dict[int, Curve]:
    """The curve of each global batch in one model's table; rows without any speed are left out."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            rows = list(csv.reader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ProfileError(f"profile {path}: cannot be read ({error})") from None
    shares = _read_header(path, rows)
    curves = {}
    for number, cells in enumerate(rows[1:], start=2):
        if cells:
            batch, curve = _read_row(f"profile {path}, line {number}", shares, cells)
            if curve is not None:
                curves[batch] = curve
    return curves


def _read_header(path: Path, rows: Sequence[Sequence[str]]) -> tuple[int, ...]:
    header = [cell.strip() for cell in rows[0]] if rows else []
    counts = header[1:]
    if header[:1] != [BATCH_COLUMN] or not counts or not all(cell.isdecimal() for cell in counts):
        raise ProfileError(
            f"profile {path}, line 1: header {','.join(header)!r} must be '{BATCH_COLUMN}' followed by device counts"
        )
    shares = tuple(map(int, counts))
    if any(after <= before for before, after in zip((0, *shares), shares, strict=False)):
        raise ProfileError(f"profile {path}, line 1: device counts {counts} must be positive and ascending")
    return shares


def _read_row(where: str, shares: Sequence[int], cells: Sequence[str]) -> tuple[int, Curve | None]:
    if len(cells) != len(shares) + 1:
        raise ProfileError(f"{where}: {len(cells)} cells where the header has {len(shares) + 1}")
    if not cells[0].strip().isdecimal() or int(cells[0]) < 1:
        raise ProfileError(f"{where}: global batch {cells[0]!r} must be a positive whole number")
    batch = int(cells[0])
    speeds = ((share, _read_speed(where, cell)) for share, cell in zip(shares, cells[1:], strict=True))
    # Each device needs at least one sample of the global batch.
    points = [(share, speed) for share, speed in speeds if speed > 0 and share <= batch]
    return batch, _build_curve(points)


def _read_speed(where: str, cell: str) -> float:
    text = cell.strip()
    try:
        speed = float(text) if text else 0.0
    except ValueError:
        raise ProfileError(f"{where}: speed {cell!r} is not a number of steps per second") from None
    if isnan(speed):
        return 0.0
    if speed < 0 or not isfinite(speed):
        raise ProfileError(f"{where}: speed {cell!r} must be a positive number of steps per second, or 0 or nan")
    return speed


def _build_curve(points: Iterable[tuple[int, float]]) -> Curve | None:
    pairs = list(points)
    return Curve(tuple(share for share, _ in pairs), tuple(speed for _, speed in pairs)) if pairs else None


def _take_slowest(tables: Sequence[Profiles]) -> Profiles:
    shared = set(tables[0].curves).intersection(*(table.curves for table in tables[1:]))
    curves = {}
    for key in sorted(shared):
        curve = _build_curve(_slowest_points([table.curves[key] for table in tables]))
        if curve is not None:
            curves[key] = curve
    return Profiles(" and ".join(table.origin for table in tables), curves)


def _slowest_points(curves: Sequence[Curve]) -> Iterable[tuple[int, float]]:
    common = set(curves[0].shares).intersection(*(curve.shares for curve in curves[1:]))
    return [(share, min(curve.rate(share) for curve in curves)) for share in sorted(common)]
