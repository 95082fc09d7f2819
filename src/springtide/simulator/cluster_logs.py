"""Workloads as others published them: the logs of Philly, Helios and PAI, and the job lists of Sia and Chronus.

A log says when a job came, how many GPUs it held and for how long, not what it trained: such a job is rigid, one step
a second on the GPUs it had. Times begin at the first job. None of the logs has deadlines; Chronus' lists have, in
minutes after submission. What a row says of a job is read here; the file and the order of jobs belong to `traces`.

  Philly   `cluster_job_log` (JSON): jobid, submitted_time, attempts with start_time, end_time and the gpus of each node
  Helios   cluster_log.csv: job_id, gpu_num, submit_time, duration, state, ...
  PAI      pai_task_table.csv (no header): one job per task; GPUs are inst_num x plan_gpu / 100, rounded up
  Sia      workload-N.csv: name, time, application, num_replicas, batch_size; the work is that of its application
  Chronus  trace_job_*.csv: num_gpu, submit_time, duration, expect_time_list; of several deadlines the first counts
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil, inf
from pathlib import Path
from typing import Any

from springtide.errors import TraceError
from springtide.simulator.csv_cells import (
    FLAGS,
    CsvHeader,
    TraceForm,
    not_negative,
    positive,
    read_count,
    read_number,
    read_text,
)
from springtide.simulator.scenarios import Request

MINUTE_S = 60.0
PHILLY_HEADER = ("jobid", "user", "submitted_time", "gpus", "held_s")
PAI_HEADER = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
PAI_STATES = frozenset({"Terminated", "Failed", "Running", "Waiting", "Ready", "Interrupted", "Cancelled"})
WHOLE_GPU = 100.0  # plan_gpu of one GPU

# samples to train, as in Sia's simulator: batch size x iterations at the smallest batch, over all its epochs
SIA_SAMPLES = {
    "bert": 177_288.0,
    "cifar10": 5_000_000.0,
    "deepspeech2": 570_720.0,
    "imagenet": 115_306_000.0,
    "ncf": 49_708_000.0,
    "yolov3": 827_550.0,
}


def find_form(names: Sequence[str]) -> TraceForm | None:
    """The form that a header belongs to; None if it is none of these."""
    return next((form for required, form in FORMS if set(required) <= set(names)), None)


def is_task_table(cells: Sequence[str]) -> bool:
    """Whether a first row is already one of PAI's task table, which has no header."""
    return len(cells) == len(PAI_HEADER) and cells[3] in PAI_STATES


def read_philly(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(number of the job, cells) of a Philly log under a header of our own; a header comes first."""
    try:
        jobs = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TraceError(f"trace {path}: is not a JSON list of jobs ({error})") from None
    if not isinstance(jobs, list):
        raise TraceError(f"trace {path}: holds a {type(jobs).__name__}; a Philly log is a JSON list of jobs")
    yield 1, list(PHILLY_HEADER)
    for number, job in enumerate(jobs, start=1):
        yield number, _flatten_philly(path, number, job)


def _flatten_philly(path: Path, number: int, job: Any) -> list[str]:
    """A job of a Philly log as cells: the GPUs of its last attempt, and the seconds of all attempts that ended."""
    if not isinstance(job, dict):
        raise TraceError(
            f"trace {path}, job {number}: is a {type(job).__name__}, not an object with jobid and attempts"
        )
    attempts = [one for one in job.get("attempts") or () if one.get("start_time") and one.get("end_time")]
    gpus = sum(len(node.get("gpus") or ()) for node in (attempts[-1].get("detail") or ())) if attempts else 0
    try:
        spans = [
            (read_date("start_time", one["start_time"]), read_date("end_time", one["end_time"])) for one in attempts
        ]
    except TraceError as error:
        raise TraceError(f"trace {path}, job {number}: {error}") from None
    held_s = sum(max(end_s - begin_s, 0.0) for begin_s, end_s in spans)
    cells = (job.get("jobid"), job.get("user"), job.get("submitted_time"), gpus, held_s)
    return ["" if cell is None else str(cell) for cell in cells]


def read_date(column: str, text: str) -> float:
    """The seconds of a date as in `2020-06-09 18:41:01`; time zones are dropped."""
    words = text.split()
    try:
        return datetime.fromisoformat(" ".join(words[:2])).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise TraceError(f"{column} {text!r} must be a date such as 2020-06-09 18:41:01") from None


def _read_dated(layout: CsvHeader, cells: Sequence[str], line: int) -> Request:
    _check_width(layout, cells)
    submit_s = read_date(*layout.cell(cells, "submit"))
    devices = _count_devices(*layout.cell(cells, "devices"))
    duration_s = read_number(*layout.cell(cells, "duration"), positive)
    return _make_rigid(layout, cells, line, submit_s, devices, duration_s)


def _read_pai(layout: CsvHeader, cells: Sequence[str], line: int) -> Request:
    _check_width(layout, cells)
    begin_s = read_number(*layout.cell(cells, "submit"), not_negative)
    end_s = read_number(*layout.cell(cells, "end"), not_negative)
    if end_s <= begin_s:
        raise TraceError(f"end_time {end_s:g} must come after start_time {begin_s:g}")
    per_instance = read_number(*layout.cell(cells, "devices"), positive)
    instances = read_number(*layout.cell(cells, "instances"), positive)
    devices = ceil(per_instance * instances / WHOLE_GPU)
    request = _make_rigid(layout, cells, line, begin_s, devices, end_s - begin_s)
    task = layout.cell(cells, "task")[1]
    return replace(request, id=f"{request.id}/{task}")


def _read_chronus(layout: CsvHeader, cells: Sequence[str], line: int) -> Request:
    _check_width(layout, cells)
    submit_s = MINUTE_S * read_number(*layout.cell(cells, "submit"), not_negative)
    duration_s = MINUTE_S * read_number(*layout.cell(cells, "duration"), positive)
    request = _make_rigid(layout, cells, line, submit_s, _count_devices(*layout.cell(cells, "devices")), duration_s)
    column, text = layout.cell(cells, "deadline")
    flag = layout.cell(cells, "best_effort")[1].lower()
    if FLAGS.get(flag, False) or not text:
        return request
    after_s = MINUTE_S * read_number(column, text.split("-")[0], positive)
    return replace(request, deadline_s=submit_s + after_s)


def _read_sia(layout: CsvHeader, cells: Sequence[str], line: int) -> Request:
    _check_width(layout, cells)
    application = read_text(*layout.cell(cells, "model"))
    if application not in SIA_SAMPLES:
        raise TraceError(f"application {application!r} is not one of Sia's: {', '.join(SIA_SAMPLES)}")
    return Request(
        id=layout.cell(cells, "id")[1] or f"line-{line}",
        submit_s=read_number(*layout.cell(cells, "submit"), not_negative),
        requested=read_count(*layout.cell(cells, "devices")),
        samples=SIA_SAMPLES[application],
        model=application,
        batch=read_count(*layout.cell(cells, "batch")),
    )


def _check_width(layout: CsvHeader, cells: Sequence[str]) -> None:
    if len(cells) != layout.width:
        raise TraceError(f"row has {len(cells)} of the header's {layout.width} columns; it is cut off or malformed")


def _count_devices(column: str, text: str) -> int:
    if text in ("", "0", "0.0"):
        raise TraceError(f"{column} {text!r}: the job holds no GPU, so there is nothing to schedule; leave it out")
    return read_count(column, text)


def _make_rigid(
    layout: CsvHeader, cells: Sequence[str], line: int, submit_s: float, devices: int, duration_s: float
) -> Request:
    return Request(
        id=layout.cell(cells, "id")[1] or f"line-{line}",
        submit_s=submit_s,
        requested=devices,
        steps=duration_s,
        deadline_s=inf,
        speeds=((devices, 1.0),),
        user=layout.cell(cells, "user")[1],
    )


_ID_AND_USER = {"id": ("job_id", "jobid", "name", "job_name"), "user": ("user",)}
PHILLY = TraceForm(
    {**_ID_AND_USER, "submit": ("submitted_time",), "devices": ("gpus",), "duration": ("held_s",)},
    _read_dated,
    from_zero=True,
)
HELIOS = TraceForm(
    {**_ID_AND_USER, "submit": ("submit_time",), "devices": ("gpu_num",), "duration": ("duration",)},
    _read_dated,
    from_zero=True,
)
PAI = TraceForm(
    {
        **_ID_AND_USER,
        "task": ("task_name",),
        "instances": ("inst_num",),
        "submit": ("start_time",),
        "end": ("end_time",),
        "devices": ("plan_gpu",),
    },
    _read_pai,
    repeats=True,
    from_zero=True,
)
CHRONUS = TraceForm(
    {
        **_ID_AND_USER,
        "submit": ("submit_time",),
        "devices": ("num_gpu",),
        "duration": ("duration",),
        "deadline": ("expect_time_list",),
        "best_effort": ("best_effort",),
    },
    _read_chronus,
)
SIA = TraceForm(
    {
        **_ID_AND_USER,
        "submit": ("time",),
        "model": ("application",),
        "devices": ("num_replicas",),
        "batch": ("batch_size",),
    },
    _read_sia,
    repeats=True,
)
FORMS: tuple[tuple[tuple[str, ...], TraceForm], ...] = (
    (PHILLY_HEADER, PHILLY),
    (("gpu_num", "submit_time", "duration", "state"), HELIOS),
    (PAI_HEADER, PAI),
    (("num_gpu", "submit_time", "duration", "expect_time_list"), CHRONUS),
    (("time", "application", "num_replicas", "batch_size"), SIA),
)
