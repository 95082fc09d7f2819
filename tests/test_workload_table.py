"""The table of all workloads ends: runs have a limit, and finished ones are not made again."""

from io import StringIO
from pathlib import Path

from benchmarks.deadlines import Cell, CellRecord, TableSetting, measure, print_all, redraw
from benchmarks.trap_workloads import FAMILIES
from rich.console import Console

WORKLOAD, CLUSTER = "trap razor_thin", "4x8:a100"


def test_a_run_that_takes_too_long_is_told_as_such(tmp_path: Path) -> None:
    late = measure(TableSetting(tmp_path, 0.0, 1), WORKLOAD, CLUSTER, "fifo")
    assert late == Cell("> 0 s", has_ended=False)
    CellRecord(tmp_path / "runs.jsonl").add("some run", late)
    assert CellRecord(tmp_path / "runs.jsonl").cells == {}, "it is made again, perhaps with more time"
    assert 0.0 < float(measure(TableSetting(tmp_path, 60.0, 1), WORKLOAD, CLUSTER, "fifo").text) < 1.0


def test_runs_are_kept_and_not_made_again(tmp_path: Path) -> None:
    record, setting = tmp_path / "runs.jsonl", TableSetting(tmp_path, 60.0, 1)
    CellRecord(record).add(f"{WORKLOAD} {CLUSTER} edf", Cell("kept"))
    tables = []
    for _ in range(2):
        out = StringIO()
        print_all(Console(file=out, width=150), setting, "razor_thin", ["edf", "fifo"], CellRecord(record))
        tables.append(out.getvalue().splitlines())
    head, row = tables[0]
    assert head.split() == ["workload", "cluster", "edf", "fifo"]
    assert row.split()[-2] == "kept"
    assert tables[1] == tables[0]
    assert len(record.read_text().splitlines()) == 2


def test_deadlines_drawn_anew_are_the_same_on_every_cluster_and_within_the_factors() -> None:
    trace = FAMILIES["razor_thin"].make("razor_thin", seed=0)
    tight = redraw(trace, 0.5, 1.0)
    assert tight == redraw(trace, 0.5, 1.0) != trace
    for job in tight.jobs:
        duration_s = job.work / job.curve.rate(job.requested)
        assert 0.5 * duration_s <= job.deadline_s - job.submit_s <= duration_s
