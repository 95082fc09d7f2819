"""Reads traces: files with one job per row, in the two ElasticFlow namings, a plain one, or as others publish theirs.

Every value is checked here, once; an error names the file, the line, the value and the rule. What a job's
model and batch mean for its speed is decided by `scenarios`. What others publish is read by `easyscale_traces` and
`cluster_logs`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from operator import attrgetter
from pathlib import Path

from springtide.core.jobs import Job
from springtide.errors import InputError, TraceError
from springtide.simulator import cluster_logs, easyscale_traces
from springtide.simulator.csv_cells import (
    FLAGS,
    CsvHeader,
    TraceForm,
    not_negative,
    positive,
    read_count,
    read_number,
    read_rows,
    read_text,
)
from springtide.simulator.scenarios import Request, Scenario, StatedSpeeds, WorkerRequest

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
    "determinism": ("determinism",),
    "device_type": ("device_type",),
}
SPEED_PREFIX = "speed_"  # speed_4: steps per second on 4 devices, instead of a model and a batch
LEVELS = {"": False, "d1": False, "d2": True}  # whether several device types may be used


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of one file in order of submission, and what was wrong with the rows that were left out.

    `unmet` says which jobs prefer a device type that they cannot have.
    """

    name: str
    jobs: tuple[Job, ...]
    skipped: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()


def read_trace(path: Path, setting: Scenario, skip_bad_rows: bool = False, last_of_duplicates: bool = False) -> Trace:
    """The jobs of a trace file; a row that cannot be used stops it, or is left out and reported when asked.

    Of rows with one id only the last is kept with `last_of_duplicates`; otherwise they are an error, or jobs of their
    own in EasyScale's form, where they are names.
    """
    jobs: dict[str, Job] = {}
    skipped: list[str] = []
    unmet: dict[str, str] = {}
    lines_by_id: dict[str, int] = {}
    form, layout, rows = _open(path)
    for line, cells in rows:
        try:
            request = form.read(layout, cells, line)
            if not last_of_duplicates:
                request = _tell_apart(form, request, lines_by_id, line)
            job = setting.build_job(request, len(jobs))
        except InputError as error:
            message = f"trace {path}, line {line}: {error}"
            if not skip_bad_rows:
                raise type(error)(message) from None
            skipped.append(message)
            continue
        jobs.pop(request.id, None)
        jobs[request.id] = job
        lines_by_id[request.id] = line
        unmet[request.id] = setting.find_unmet(request, job)
    if not jobs:
        raise TraceError(f"trace {path} holds no usable job; it needs a header and at least one row")
    notes = tuple(f"trace {path}, line {lines_by_id[job_id]}: {text}" for job_id, text in unmet.items() if text)
    ordered = order_jobs(list(jobs.values()))
    return Trace(path.stem, _begin_at_zero(ordered) if form.from_zero else ordered, tuple(skipped), notes)


def order_jobs(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Jobs in order of submission, ties by row, numbered through."""
    ordered = sorted(jobs, key=attrgetter("submit_s"))
    return tuple(job if job.index == index else replace(job, index=index) for index, job in enumerate(ordered))


def _begin_at_zero(jobs: Sequence[Job]) -> tuple[Job, ...]:
    first_s = jobs[0].submit_s
    return tuple(replace(job, submit_s=job.submit_s - first_s, deadline_s=job.deadline_s - first_s) for job in jobs)


def _open(path: Path) -> tuple[TraceForm, CsvHeader, Iterator[tuple[int, list[str]]]]:
    """The form of a trace, where its columns are, and the rows after the header."""
    rows = cluster_logs.read_philly(path) if path.suffix == ".json" else read_rows(path)
    line, header = next(rows, (1, []))
    if cluster_logs.is_task_table(header):
        rows, header = chain([(line, header)], rows), list(cluster_logs.PAI_HEADER)
    return *_locate(path, header), rows


def _locate(path: Path, header: Sequence[str]) -> tuple[TraceForm, CsvHeader]:
    names = [name.strip() for name in header]
    if easyscale_traces.recognise(names):
        form = TraceForm(easyscale_traces.COLUMNS, easyscale_traces.read_request, repeats=True)
        return form, CsvHeader(len(names), _find_columns(path, names, form.columns))
    published = cluster_logs.find_form(names)
    if published is not None:
        return published, CsvHeader(len(names), _find_columns(path, names, published.columns))
    form = TraceForm(COLUMNS, _read_request)
    layout = CsvHeader(len(names), _find_columns(path, names, form.columns), _locate_speeds(names))
    _check_header(path, names, layout)
    return form, layout


def _find_columns(
    path: Path, names: Sequence[str], columns: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[int, str]]:
    positions: dict[str, tuple[int, str]] = {}
    for field, known in columns.items():
        found = [name for name in names if name in known]
        if len(found) > 1:
            raise TraceError(f"trace {path}, line 1: columns {' and '.join(found)} mean the same; keep one of them")
        if found:
            positions[field] = names.index(found[0]), found[0]
    return positions


def _locate_speeds(names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    found = [
        (int(name.removeprefix(SPEED_PREFIX)), position)
        for position, name in enumerate(names)
        if name.startswith(SPEED_PREFIX) and name.removeprefix(SPEED_PREFIX).isdecimal()
    ]
    return tuple(sorted(found))


def _check_header(path: Path, names: Sequence[str], layout: CsvHeader) -> None:
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


def _read_request(layout: CsvHeader, cells: Sequence[str], line: int) -> Request:
    if len(cells) != layout.width:
        raise TraceError(f"row has {len(cells)} of the header's {layout.width} columns; it is cut off or malformed")
    submit_s = read_number(*layout.cell(cells, "submit"), not_negative)
    request = Request(
        id=layout.cell(cells, "id")[1] or f"line-{line}",
        submit_s=submit_s,
        requested=read_count(*layout.cell(cells, "devices"), default=1),
        steps=read_number(*layout.cell(cells, "steps"), positive) if "steps" in layout.positions else None,
        duration_s=read_number(*layout.cell(cells, "duration"), positive) if "duration" in layout.positions else None,
        deadline_s=_read_deadline(layout, cells, submit_s),
        speeds=_read_speeds(layout, cells),
        mixes=_read_level(*layout.cell(cells, "determinism")),
        preferred=layout.cell(cells, "device_type")[1].lower(),
    )
    if request.speeds:
        return request
    return replace(
        request, model=read_text(*layout.cell(cells, "model")), batch=read_count(*layout.cell(cells, "batch"))
    )


def _read_deadline(layout: CsvHeader, cells: Sequence[str], submit_s: float) -> float:
    """The absolute deadline; infinite for a best-effort job (flagged, or an empty `deadline_s`)."""
    column, text = layout.cell(cells, "deadline")
    flag_column, flag = layout.cell(cells, "best_effort")
    if flag.lower() not in FLAGS:
        raise TraceError(f"{flag_column} {flag!r} must be 0 or 1")
    if FLAGS[flag.lower()] or "deadline" not in layout.positions or (column == "deadline_s" and not text):
        return inf
    deadline_s = read_number(column, text, not_negative)
    if deadline_s < submit_s:
        raise TraceError(f"{column} {text!r} is before the submission at {submit_s:g} s; it must not be earlier")
    return deadline_s


def _read_speeds(layout: CsvHeader, cells: Sequence[str]) -> StatedSpeeds:
    """The job's own speeds; an empty cell or 0 means that share is not available."""
    speeds = []
    for share, position in layout.speeds:
        text = cells[position].strip()
        if text and text != "0":
            speeds.append((share, read_number(f"{SPEED_PREFIX}{share}", text, positive)))
    if layout.speeds and not speeds and "model" not in layout.positions:
        raise TraceError(f"row has no speed in any {SPEED_PREFIX}N column; it needs at least one")
    return tuple(speeds)


def _read_level(column: str, text: str) -> bool:
    """Whether a job may use several device types: D2 does, D1 (the default) keeps to one."""
    if text.lower() not in LEVELS:
        raise TraceError(f"{column} {text!r} must be D1 (one device type) or D2 (several at once)")
    return LEVELS[text.lower()]


def _tell_apart(
    form: TraceForm, request: Request | WorkerRequest, lines_by_id: Mapping[str, int], line: int
) -> Request | WorkerRequest:
    """A request under an id that no earlier row has."""
    if request.id not in lines_by_id:
        return request
    if form.repeats:
        return replace(request, id=f"{request.id}@{line}")
    raise TraceError(
        f"job id {request.id!r} was already used on line {lines_by_id[request.id]}; ids must be unique "
        "(--last-of-duplicates keeps the last row of each)"
    )
