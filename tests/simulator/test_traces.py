"""Trace files: both ElasticFlow namings, the plain one, and every way a row can be wrong."""

from math import inf
from pathlib import Path

import pytest

from springtide.core.curves import Curve
from springtide.core.devices import parse_cluster
from springtide.errors import InputError, ProfileError, TraceError
from springtide.simulator.scenarios import Scenario
from springtide.simulator.traces import Trace, read_trace
from springtide.throughput.tables.profiles import Profiles

NET = Curve((1, 2, 4, 8), (1.0, 1.8, 3.0, 4.0))
ARTIFACT = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration"
MICROSOFT = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration"
GOOD = "a,0,100,net,200,64,1,100"
TYPED = {"a100": NET, "t4": NET.scaled(0.25)}


def build_setting(cluster: str = "1x8:a100") -> Scenario:
    return Scenario(parse_cluster(cluster), Profiles("test profiles", {("net", 64): NET}))


def read(tmp_path: Path, *lines: str, skip: bool = False, cluster: str = "1x8:a100") -> Trace:
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(lines))
    return read_trace(path, build_setting(cluster), skip)


@pytest.mark.parametrize("header", [ARTIFACT, MICROSOFT])
def test_reads_both_elasticflow_namings(tmp_path: Path, header: str) -> None:
    trace = read(tmp_path, header, GOOD, "b,5,90,net,300.5,64,2,50")
    assert trace.name == "jobs"
    first, second = trace.jobs
    assert (first.id, first.index, first.submit_s, first.work, first.deadline_s, first.requested) == (
        "a", 0, 0.0, 100.0, 200.0, 1,
    )  # fmt: skip
    assert first.curve is second.curve
    assert second.deadline_s == 300.5
    assert second.requested == 2


def test_unknown_columns_are_ignored(tmp_path: Path) -> None:
    header = "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration"
    trace = read(tmp_path, header, "a,0,7,net,200,64,1,7,100,90")
    assert trace.jobs[0].work == 90.0


@pytest.mark.parametrize(("flag", "deadline_s"), [("1", inf), ("0", 200.0), ("", 200.0), ("true", inf)])
def test_best_effort_column(tmp_path: Path, flag: str, deadline_s: float) -> None:
    assert read(tmp_path, ARTIFACT + ",best_effort", GOOD + "," + flag).jobs[0].deadline_s == deadline_s


def test_plain_naming_with_duration_instead_of_steps(tmp_path: Path) -> None:
    job = read(tmp_path, "submit_s,duration_s,model,batch,devices,deadline_s", "0,10,net,64,2,").jobs[0]
    assert job.work == pytest.approx(18.0)
    assert job.best_effort
    assert job.id == "line-2"


def test_plain_naming_with_speeds_of_its_own(tmp_path: Path) -> None:
    job = read(tmp_path, "id,submit_s,steps,speed_1,speed_2,speed_4", "x,0,10,1,1.5,0").jobs[0]
    assert job.curve == Curve((1, 2), (1.0, 1.5))


def test_rows_are_ordered_by_submission_then_by_row(tmp_path: Path) -> None:
    rows = [f"{name},{submit},100,net,900,64,1,100" for name, submit in (("a", 9), ("b", 3), ("c", 9), ("d", 3))]
    trace = read(tmp_path, ARTIFACT, *rows)
    assert [(job.id, job.index) for job in trace.jobs] == [("b", 0), ("d", 1), ("a", 2), ("c", 3)]


def test_curves_are_capped_at_the_cluster_and_requests_beyond_it_kept(tmp_path: Path) -> None:
    job = read(tmp_path, ARTIFACT, "a,0,100,net,200,64,8,100", cluster="1x4:a100").jobs[0]
    assert job.curve.shares == (1, 2, 4)
    assert job.requested == 8


def test_a_request_without_a_known_speed_is_rounded_down(tmp_path: Path) -> None:
    assert read(tmp_path, ARTIFACT, "a,0,100,net,200,64,3,100").jobs[0].requested == 2


BAD_ROWS = [
    ("a,0,100,net,200,64,1", "7 of the header's 8 columns"),
    ("a,0,100,net,200,64,1,100,9", "9 of the header's 8 columns"),
    ("a,-1,100,net,200,64,1,100", "submit_time '-1'"),
    ("a,nan,100,net,200,64,1,100", "submit_time 'nan'"),
    ("a,inf,100,net,200,64,1,100", "submit_time 'inf'"),
    ("a,soon,100,net,200,64,1,100", "submit_time 'soon'"),
    ("a,0,0,net,200,64,1,100", "iteration '0'"),
    ("a,0,-5,net,200,64,1,100", "iteration '-5'"),
    ("a,0,nan,net,200,64,1,100", "iteration 'nan'"),
    ("a,0,100,,200,64,1,100", "model_name is empty"),
    ("a,300,100,net,200,64,1,100", "ddl '200' is before the submission at 300 s"),
    ("a,0,100,net,nan,64,1,100", "ddl 'nan'"),
    ("a,0,100,net,-3,64,1,100", "ddl '-3'"),
    ("a,0,100,net,,64,1,100", "ddl ''"),
    ("a,0,100,net,200,0,1,100", "batch_size '0'"),
    ("a,0,100,net,200,64,0,100", "num_gpu '0'"),
    ("a,0,100,net,200,64,-2,100", "num_gpu '-2'"),
    ("a,0,100,net,200,64,1.5,100", "num_gpu '1.5'"),
    ("a,0,100,net,200,64,1,-100", "duration '-100'"),
    ("a,0,100,net,200,64,1,nan", "duration 'nan'"),
]


@pytest.mark.parametrize(("row", "part"), BAD_ROWS)
def test_a_bad_row_names_file_line_value_and_rule(tmp_path: Path, row: str, part: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, ARTIFACT, "z,0,100,net,200,64,1,100", row)
    message = str(caught.value)
    assert "jobs.csv, line 3: " in message
    assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(("row", "part"), BAD_ROWS)
def test_bad_rows_are_skipped_and_reported_when_asked(tmp_path: Path, row: str, part: str) -> None:
    trace = read(tmp_path, ARTIFACT, row, "z,0,100,net,200,64,1,100", skip=True)
    assert [job.id for job in trace.jobs] == ["z"]
    assert trace.jobs[0].index == 0
    assert len(trace.skipped) == 1
    assert part in trace.skipped[0]


def test_a_model_without_profile_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"line 2: model 'llama' has no profile .*profiles of net"):
        read(tmp_path, ARTIFACT, "a,0,100,llama,200,64,1,100")


def test_the_second_of_two_equal_ids_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"line 3: job id 'a' was already used on line 2"):
        read(tmp_path, ARTIFACT, GOOD, GOOD)


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ((), "lacks"),
        ((ARTIFACT,), "no usable job"),
        (("job_id,when", "a,1"), "lacks one of submit_time"),
        ((ARTIFACT + ",deadline", GOOD + ",5"), "ddl and deadline mean the same"),
        (("submit_s,steps,speed_1", "0,10,"), "no speed"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, lines: tuple[str, ...], part: str) -> None:
    with pytest.raises(TraceError, match=part):
        read(tmp_path, *lines)


def test_a_missing_a_binary_and_a_folder_trace_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be opened"):
        read_trace(tmp_path / "none.csv", build_setting())
    with pytest.raises(TraceError, match="cannot be opened"):
        read_trace(tmp_path, build_setting())
    binary = tmp_path / "x.csv"
    binary.write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match=r"x\.csv"):
        read_trace(binary, build_setting())


def test_on_a_mixed_cluster_jobs_have_speeds_by_type_and_a_level(tmp_path: Path) -> None:
    profiles = {kind: Profiles(f"{kind} profiles", {("net", 64): curve}) for kind, curve in TYPED.items()}
    setting = Scenario(parse_cluster("1x4:a100,1x2:t4"), profiles["t4"], typed=profiles, time_scale=2.0)
    path = tmp_path / "jobs.csv"
    header = "id,submit_s,duration_s,model,batch,devices,determinism,device_type"
    path.write_text("\n".join((header, "a,0,10,net,64,8,D2,", "b,0,10,net,64,2,,t4")))
    first, second = read_trace(path, setting).jobs
    assert first.typed is not None and first.typed.blend is not None and first.requested == 8
    assert first.typed.curves["a100"].rates == (0.5, 0.9, 1.5) and first.work == 40.0
    assert second.typed is not None and second.typed.blend is None and second.typed.preferred == "t4"
    assert second.curve.shares == (1, 2) and second.work == pytest.approx(4.5)
    path.write_text("\n".join((header, "a,0,10,net,64,4,D1,p100")))
    (unmet,) = read_trace(path, setting).unmet
    assert "line 2: job 'a' prefers device type 'p100'" in unmet and "on a100, t4 only" in unmet
    path.write_text("\n".join((header, "a,0,10,net,64,4,D3,")))
    with pytest.raises(TraceError, match=r"determinism 'D3' must be D1 .* or D2"):
        read_trace(path, setting)
    setting.typed = {"a100": profiles["a100"], "t4": Profiles("t4 profiles", {})}
    path.write_text("\n".join((header, "a,0,10,net,64,4,D1,")))
    with pytest.raises(ProfileError, match=r"device type 't4': model 'net' has no profile .* run `springtide profile`"):
        read_trace(path, setting)


def test_repeated_ids_are_an_error_unless_the_last_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join((ARTIFACT, GOOD, GOOD.replace("100", "90"))))
    with pytest.raises(TraceError, match="--last-of-duplicates keeps the last"):
        read_trace(path, build_setting())
    assert [job.work for job in read_trace(path, build_setting(), last_of_duplicates=True).jobs] == [90.0]
