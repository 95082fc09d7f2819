"""Reads traces: CSV files with one job per row, in the two ElasticFlow namings or a plain one.

Every value is checked here, once; an error names the file, the line, the value and the rule. What a job's
model and batch mean for its speed is settled by `settings`.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from operator import attrgetter
from pathlib import Path

from springtide.core.jobs import Job
from springtide.errors import InputError, TraceError
from springtide.simulator.settings import Request, Setting, Speeds

# field -> the names its column may have: ElasticFlow's artifact, Microsoft's traces, then our own
COLUMNS: dict[str, tuple[str, ...]] = {
    "id": ("job_id", "id", "name"),
    "submit": ("submit_time", "submission_time", "submit_s"),
    "steps": ("iteration", "num_iteration", "steps"),
    "duration": ("duration", "duration_s"),
    "deadline": ("ddl", "deadline", "deadline_s"),
    "model": ("model_name", "model"),
    "batch": ("batch_size", "batch"),
    "devices": ("num_gpu", "devices"),
    "best_effort": ("best_effort",),
}
SPEED_PREFIX = "speed_"  # speed_4: steps per second on 4 devices, instead of a model and a batch
FLAGS = {"0": False, "false": False, "no": False, "": False, "1": True, "true": True, "yes": True}


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of one file in order of submission, and what was wrong with the rows that were left out."""

    name: str
    jobs: tuple[Job, ...]
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each field stands in a row: field -> (position, column name); and the columns with speeds."""

    width: int
    positions: dict[str, tuple[int, str]]
    speeds: tuple[tuple[int, int], ...]  # (share, position)

    def cell(self, cells: Sequence[str], field: str) -> tuple[str, str]:
        """(column name, text) of a field; an absent column reads as empty."""
        position, name = self.positions.get(field, (-1, field))
        return name, cells[position].strip() if position >= 0 else ""


def read_trace(path: Path, setting: Setting, skip_bad_rows: bool = False) -> Trace:
    """The jobs of a trace file; a row that cannot be used stops it, or is left out and reported when asked."""
    jobs: list[Job] = []
    skipped: list[str] = []
    lines_by_id: dict[str, int] = {}
    rows = _read_rows(path)
    layout = _locate(path, rows)
    for line, cells in rows:
        try:
            request = _read_request(layout, cells, line)
            _check_new(request.id, lines_by_id)
            jobs.append(setting.build_job(request, len(jobs)))
        except InputError as error:
            message = f"trace {path}, line {line}: {error}"
            if not skip_bad_rows:
                raise type(error)(message) from None
            skipped.append(message)
            continue
        lines_by_id[request.id] = line
    if not jobs:
        raise TraceError(f"trace {path} holds no usable job; it needs a header and at least one row")
    return Trace(path.stem, _order(jobs), tuple(skipped))


def _order(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Jobs in order of submission, ties by row, numbered through."""
    ordered = sorted(jobs, key=attrgetter("submit_s"))
    return tuple(job if job.index == index else replace(job, index=index) for index, job in enumerate(ordered))


def _read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each row that is not blank, the header first."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.reader(lines)
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
    except OSError as error:
        raise TraceError(f"trace {path}: cannot be opened ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"trace {path}: is not a CSV text file ({error})") from None


def _locate(path: Path, rows: Iterator[tuple[int, list[str]]]) -> Layout:
    _, header = next(rows, (1, []))
    names = [name.strip() for name in header]
    positions: dict[str, tuple[int, str]] = {}
    for field, known in COLUMNS.items():
        found = [name for name in names if name in known]
        if len(found) > 1:
            raise TraceError(f"trace {path}, line 1: columns {' and '.join(found)} mean the same; keep one of them")
        if found:
            positions[field] = names.index(found[0]), found[0]
    layout = Layout(len(names), positions, _locate_speeds(names))
    _check_header(path, names, layout)
    return layout


def _locate_speeds(names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    found = [
        (int(name.removeprefix(SPEED_PREFIX)), position)
        for position, name in enumerate(names)
        if name.startswith(SPEED_PREFIX) and name.removeprefix(SPEED_PREFIX).isdecimal()
    ]
    return tuple(sorted(found))


def _check_header(path: Path, names: Sequence[str], layout: Layout) -> None:
    def present(field: str) -> bool:
        return field in layout.positions

    missing = [] if present("submit") else [COLUMNS["submit"]]
    if not present("steps") and not present("duration"):
        missing.append((*COLUMNS["steps"], *COLUMNS["duration"]))
    if not layout.speeds:
        missing += [COLUMNS[field] for field in ("model", "batch") if not present(field)]
    if missing:
        wanted = "; ".join("one of " + ", ".join(known) for known in missing)
        raise TraceError(f"trace {path}, line 1: header {','.join(names)!r} lacks {wanted}")


def _read_request(layout: Layout, cells: Sequence[str], line: int) -> Request:
    if len(cells) != layout.width:
        raise TraceError(f"row has {len(cells)} of the header's {layout.width} columns; it is cut off or malformed")
    submit_s = _read_number(*layout.cell(cells, "submit"), _not_negative)
    request = Request(
        id=layout.cell(cells, "id")[1] or f"line-{line}",
        submit_s=submit_s,
        requested=_read_count(*layout.cell(cells, "devices"), default=1),
        steps=_read_number(*layout.cell(cells, "steps"), _positive) if "steps" in layout.positions else None,
        duration_s=_read_number(*layout.cell(cells, "duration"), _positive) if "duration" in layout.positions else None,
        deadline_s=_read_deadline(layout, cells, submit_s),
        speeds=_read_speeds(layout, cells),
    )
    if request.speeds:
        return request
    return replace(
        request,
        model=_read_text(*layout.cell(cells, "model")),
        batch=_read_count(*layout.cell(cells, "batch")),
    )


def _positive(value: float) -> str:
    return "" if 0 < value < inf else "must be a positive number"


def _not_negative(value: float) -> str:
    return "" if 0 <= value < inf else "must be a number of seconds, 0 or more"


def _read_number(column: str, text: str, rule: Callable[[float], str]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    broken = rule(value)
    if broken:
        raise TraceError(f"{column} {text!r} {broken}")
    return value


def _read_count(column: str, text: str, default: int | None = None) -> int:
    if not text and default is not None:
        return default
    value = _read_number(column, text, _positive_whole)
    return int(value)


def _positive_whole(value: float) -> str:
    return "" if isfinite(value) and value >= 1 and value == int(value) else "must be a whole number, 1 or more"


def _read_text(column: str, text: str) -> str:
    if not text:
        raise TraceError(f"{column} is empty; it must name a model")
    return text


def _read_deadline(layout: Layout, cells: Sequence[str], submit_s: float) -> float:
    """The absolute deadline; infinite for a best-effort job (flagged, or an empty `deadline_s`)."""
    column, text = layout.cell(cells, "deadline")
    flag_column, flag = layout.cell(cells, "best_effort")
    if flag.lower() not in FLAGS:
        raise TraceError(f"{flag_column} {flag!r} must be 0 or 1")
    if FLAGS[flag.lower()] or "deadline" not in layout.positions or (column == "deadline_s" and not text):
        return inf
    deadline_s = _read_number(column, text, _not_negative)
    if deadline_s < submit_s:
        raise TraceError(f"{column} {text!r} is before the submission at {submit_s:g} s; it must not be earlier")
    return deadline_s


def _read_speeds(layout: Layout, cells: Sequence[str]) -> Speeds:
    """The job's own speeds; an empty cell or 0 means that share is not available."""
    speeds = []
    for share, position in layout.speeds:
        text = cells[position].strip()
        if text and text != "0":
            speeds.append((share, _read_number(f"{SPEED_PREFIX}{share}", text, _positive)))
    if layout.speeds and not speeds and "model" not in layout.positions:
        raise TraceError(f"row has no speed in any {SPEED_PREFIX}N column; it needs at least one")
    return tuple(speeds)


def _check_new(job_id: str, lines_by_id: dict[str, int]) -> None:
    if job_id in lines_by_id:
        raise TraceError(f"job id {job_id!r} was already used on line {lines_by_id[job_id]}; ids must be unique")
