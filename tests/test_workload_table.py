"""The table of all workloads ends: runs have a limit, and finished ones are not made again; it says what it misses."""

from io import StringIO
from pathlib import Path

from benchmarks.deadlines import RUBICK, Cell, TableSetting, list_misses, measure, print_all, read_cells, redraw
from benchmarks.kept_runs import KeptRuns
from benchmarks.trap_workloads import FAMILIES
from rich.console import Console

WORKLOAD, CLUSTER = "trap razor_thin", "4x8:a100"


def make_setting(folder: Path, limit_s: float) -> TableSetting:
    return TableSetting(folder, limit_s, 1, KeptRuns(folder / "runs.jsonl"))


def test_a_run_that_takes_too_long_is_told_as_such_and_made_again_with_more_time(tmp_path: Path) -> None:
    short, long = make_setting(tmp_path, 0.0), make_setting(tmp_path, 60.0)
    assert str(measure(short, WORKLOAD, CLUSTER, "fifo")) == "> 0 s"
    assert len(read_cells(short)) == 1 and read_cells(long) == {}
    ended = measure(long, WORKLOAD, CLUSTER, "fifo")
    assert ended.met is not None and 0.0 < ended.met < 1.0
    assert list(read_cells(short).values()) == list(read_cells(long).values()) == [ended]


def test_runs_are_kept_and_not_made_again(tmp_path: Path) -> None:
    setting = make_setting(tmp_path, 60.0)
    setting.record.add(f"{WORKLOAD} {CLUSTER} edf", {"met": 0.125})
    tables = []
    for _ in range(2):
        out = StringIO()
        print_all(Console(file=out, width=150), setting, "razor_thin", ["edf", "fifo"])
        tables.append(out.getvalue().splitlines())
    head, row = tables[0]
    assert head.split() == ["workload", "cluster", "edf", "fifo"]
    assert row.split()[-2] == "0.125"
    assert tables[1] == tables[0]
    assert len(setting.record.read()) == 2


def test_only_promises_can_be_broken(tmp_path: Path) -> None:
    cell = measure(make_setting(tmp_path, 60.0), "trap tight", CLUSTER, "chronus")
    assert cell.met == 0.0 and cell.broken == 0, "it lets all jobs in, and promises nothing to those that it refuses"


def test_what_misses_a_bar_is_told() -> None:
    table = {
        ("as good", "1x1"): {"springtide": Cell(0.9), "elasticflow": Cell(0.904), "edf": Cell(0.95)},
        ("one", "1x1"): {"springtide": Cell(0.9), "elasticflow": Cell(0.906), "edf-admission": Cell(0.92, broken=1)},
        ("two", "1x1"): {"springtide": Cell(0.9, broken=2)},
        (RUBICK, "1x1"): {"springtide": Cell(0.9), "edf": Cell(0.95), "elasticflow": Cell(broken_off_s=60.0)},
        ("free", "1x1"): {"springtide": Cell(completion_h=2.2), "srtf": Cell(completion_h=2.0)},
        ("free too", "1x1"): {"springtide": Cell(completion_h=2.1), "sia": Cell(completion_h=2.0)},
    }
    told = list_misses(table)
    assert [miss.split(":")[0] for miss in told] == ["two 1x1", "one 1x1", f"{RUBICK} 1x1", "free 1x1"]
    assert "2 promises broken" in told[0] and "0.6 points under elasticflow" in told[1]
    assert "5.0 points under edf" in told[2] and "1.10 of the best" in told[3]


def test_deadlines_drawn_anew_are_the_same_on_every_cluster_and_within_the_factors() -> None:
    trace = FAMILIES["razor_thin"].make("razor_thin", seed=0)
    tight = redraw(trace, 0.5, 1.0)
    assert tight == redraw(trace, 0.5, 1.0) != trace
    for job in tight.jobs:
        duration_s = job.work / job.curve.rate(job.requested)
        assert 0.5 * duration_s <= job.deadline_s - job.submit_s <= duration_s
