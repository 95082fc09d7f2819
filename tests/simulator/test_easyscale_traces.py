"""EasyScale's workload: a small one of our own, and the published one where the data is at hand."""

import os
from pathlib import Path

import pytest

from springtide.core.devices import parse_cluster
from springtide.core.jobs import FREE, Overhead
from springtide.errors import InputError, ProfileError, TraceError
from springtide.simulator.front import simulate
from springtide.simulator.reports import SimulationReport
from springtide.simulator.scenarios import Scenario, load_scenario
from springtide.simulator.traces import Trace, read_trace

HEADER = "name,time,application,max_parallelism,batch_size,epochs,enable_heterogeneous_deterministic,preferred_gpu,"
ROWS = ("a,0,bert,4,8,10,1,fast,0.5", "b,10,bert,4,8,10,0,slow,0.5", "a,30,bert,2,8,5,40,fast")
SECONDS = "application,batch_per_worker,device_type,seconds_per_minibatch\nbert,8,fast,0.5\nbert,8,slow,1.0\n"
MIXED = "1x4:fast,1x4:slow"


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    folder = tmp_path / "speeds"
    folder.mkdir()
    (folder / "seconds.csv").write_text(SECONDS)
    return folder


def build(profiles: Path, cluster: str = MIXED, overhead: Overhead = FREE, time_scale: float = 1.0) -> Scenario:
    return load_scenario(parse_cluster(cluster), profiles, overhead, time_scale)


def read(setting: Scenario, folder: Path, *rows: str, header: str = HEADER, last: bool = False) -> Trace:
    path = folder / "jobs.csv"
    path.write_text("\n".join((header, *rows)))
    return read_trace(path, setting, last_of_duplicates=last)


def test_work_is_epochs_of_samples_in_global_batches(profiles: Path, tmp_path: Path) -> None:
    first, second, third = read(build(profiles), tmp_path, *ROWS).jobs
    assert first.work == pytest.approx(10 * 886.41 / (8 * 4))
    assert (first.requested, first.best_effort, third.id) == (4, True, "a@4")
    assert first.typed is not None and first.typed.blend is not None and first.typed.preferred == "fast"
    assert second.typed is not None and second.typed.blend is None and second.typed.preferred == "slow"
    assert third.typed is not None and third.typed.blend is not None
    assert first.typed.rate({"fast": 1, "slow": 2}) == pytest.approx(1.0)


def test_the_last_of_rows_with_one_name_is_kept_on_demand(profiles: Path, tmp_path: Path) -> None:
    jobs = read(build(profiles), tmp_path, *ROWS, last=True).jobs
    assert [(job.id, job.index, job.submit_s) for job in jobs] == [("b", 0, 10.0), ("a", 1, 30.0)]


@pytest.mark.parametrize("cluster", ["1x4:slow", "1x4:slow,1x4:other"])
def test_a_preferred_type_that_the_cluster_lacks_is_named(profiles: Path, tmp_path: Path, cluster: str) -> None:
    table = profiles / "seconds.csv"
    table.write_text(f"{table.read_text()}bert,8,other,2.0\n")
    trace = read(build(profiles, cluster), tmp_path, *ROWS, last=True)
    (unmet,) = trace.unmet
    assert "jobs.csv, line 4: job 'a' prefers device type 'fast'" in unmet
    assert f"cluster {cluster} can run it on {'slow, other' if 'other' in cluster else 'slow'} only" in unmet
    assert len(trace.jobs) == 2


def test_a_preferred_type_that_cannot_hold_the_job_is_named(profiles: Path, tmp_path: Path) -> None:
    table = profiles / "seconds.csv"
    head, fast, slow = table.read_text().splitlines()
    table.write_text(f"{head},most_workers\n{fast},1\n{slow},\n")
    (unmet,) = read(build(profiles, "1x1:fast,1x4:slow"), tmp_path, ROWS[0]).unmet
    assert "prefers device type 'fast'" in unmet and "run it on slow only" in unmet
    assert read(build(profiles, "1x4:fast,1x4:slow"), tmp_path, ROWS[0]).unmet == ()


def test_on_one_type_a_job_has_one_curve(profiles: Path, tmp_path: Path) -> None:
    job = read(build(profiles, "1x2:slow", time_scale=2.0), tmp_path, ROWS[0]).jobs[0]
    assert job.typed is None
    assert job.curve.shares == (1, 2) and job.curve.rates == pytest.approx((1 / 8, 1 / 4))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,0,bert,4,8,10,1", "cut off or malformed"),
        ("a,0,bert,zero,8,10,1,fast,", "max_parallelism 'zero'"),
        ("a,0,llama,4,8,10,1,fast,", "application 'llama' has no known epoch; give epoch_samples"),
        ("a,0,bert,4,8,10,yes,fast,", "enable_heterogeneous_deterministic 'yes'"),
        ("a,0,bert,4,16,10,1,fast,", "bert has no mini-batch seconds for batch 16"),
    ],
)
def test_rows_that_cannot_be_read(profiles: Path, tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InputError, match=f"line 2: .*{message}"):
        read(build(profiles), tmp_path, row)


def test_guarantees_beyond_the_workers_are_refused(profiles: Path, tmp_path: Path) -> None:
    header = HEADER + ",min_parallelism"
    job = read(build(profiles), tmp_path, ROWS[0] + ",2", header=header).jobs[0]
    assert job.typed is not None and job.typed.guaranteed == 2
    with pytest.raises(TraceError, match=r"min_parallelism 5 \(minP\) exceeds max_parallelism 4 \(maxP\)"):
        read(build(profiles), tmp_path, ROWS[0] + ",5", header=header)


def test_a_type_without_a_speed_and_a_table_that_is_not_there(profiles: Path, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="line 2: bert with batch 8 has no speed on device type 'h100'"):
        read(build(profiles, "1x4:fast,1x4:h100"), tmp_path, ROWS[0])
    with pytest.raises(TraceError, match="application 'bert' needs its mini-batch seconds; give --profiles"):
        read(load_scenario(parse_cluster("1x4:a100"), None, FREE), tmp_path, ROWS[0])
    with pytest.raises(InputError, match="time scale 0"):
        build(profiles, time_scale=0.0)


def test_policies_without_types_run_each_job_on_one_type(profiles: Path, tmp_path: Path) -> None:
    trace = read(build(profiles), tmp_path, *ROWS)
    assert simulate(trace, "tiresias", parse_cluster(MIXED)).finished == 3


@pytest.mark.parametrize("policy", ["yarn-cs", "fifo", "fifo-backfill", "srtf", "easyscale-homo", "easyscale-heter"])
def test_every_job_ends_under_every_policy_of_the_comparison(profiles: Path, tmp_path: Path, policy: str) -> None:
    setting = build(profiles, overhead=Overhead(20.0))
    trace = read(setting, tmp_path, *ROWS, *(f"c{n},{40 * n},bert,4,8,{n},{n % 2},slow," for n in range(1, 9)))
    report = simulate(trace, policy, setting.cluster)
    assert report.finished == report.jobs == 11


DATA = os.environ.get("SPRINGTIDE_DATA")


def replay_published(policy: str, overhead: Overhead, time_scale: float) -> SimulationReport:
    data = Path(str(DATA))
    setting = build(data / "profiles" / "easyscale", "4x8:v100,2x8:p100,4x4:t4", overhead, time_scale)
    trace = read_trace(data / "traces" / "easyscale" / "workload.csv", setting, last_of_duplicates=True)
    return simulate(trace, policy, setting.cluster)


@pytest.mark.skipif(DATA is None, reason="needs the published workload: set SPRINGTIDE_DATA")
@pytest.mark.parametrize(("time_scale", "jct_s", "end_s"), [(1.0, 6220, 13047), (1.38, 8771, 16349)])
@pytest.mark.parametrize("overhead", [FREE, Overhead(20.0)])
def test_the_serial_reading_of_the_published_simulator(
    overhead: Overhead, time_scale: float, jct_s: float, end_s: float
) -> None:
    report = replay_published("yarn-cs", overhead, time_scale)
    assert report.jobs == report.finished == 62
    assert report.avg_jct_s == report.avg_jct_best_effort_s == pytest.approx(jct_s, abs=1.0)
    # the published makespan counts from time 0, ours from the first submission at 115 s
    assert report.makespan_s + 115.0 == pytest.approx(end_s, abs=1.0)
