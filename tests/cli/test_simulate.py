"""`springtide simulate` from the outside: documents, exit codes and one-line errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from springtide.cli.app import main

HEADER = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration"
ROWS = (
    "a,0,4000,resnet50,900,64,1,580",
    "b,10,6000,vgg16,1500,128,2,1200",
    "c,10,900,bert,60,64,1,150",
    "d,500,20000,resnet50,9000,256,8,1900",
)
FIELDS = [
    "trace", "policy", "jobs", "best_effort_jobs", "gpus", "admitted", "waitlisted", "declined", "finished", "met",
    "met_unpromised", "late_admitted", "dsr", "dsr_alone_bound", "median_answer_delay_s", "avg_jct_s", "p95_jct_s",
    "avg_jct_best_effort_s", "longest_wait_best_effort_s", "makespan_s", "gpu_utilization", "cluster_efficiency",
    "gpu_hours", "starts", "rescales", "migrations", "wall_s", "cpu_s",
]  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "small.csv"
    path.write_text("\n".join((HEADER, *ROWS)) + "\n")
    return path


def run(*words: object) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as caught:
        main(["simulate", *map(str, words)])
    code = caught.value.code
    assert isinstance(code, int)
    return code


def read_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_document_has_every_field_in_order(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(trace, "--policy", "fifo,edf", "--cluster", "1x8:a100", "--json", "-") == 0
    document = read_json(capsys)
    assert document["schema"] == 1
    assert list(document) == ["schema", "runs"]
    assert [entry["policy"] for entry in document["runs"]] == ["fifo", "edf"]
    for entry in document["runs"]:
        assert list(entry) == FIELDS
        assert entry["trace"] == "small"
        assert entry["dsr"] == entry["met"] / 4


def test_output_json_equals_json_dash_and_repeats_itself(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = []
    for form in (("-o", "json"), ("--json", "-"), ("--json", "-", "--parallel", "2")):
        assert run(trace, "--policy", "fifo,edf", *form) == 0
        document = read_json(capsys)
        for entry in document["runs"]:
            del entry["wall_s"], entry["cpu_s"]
        documents.append(json.dumps(document))
    assert documents[0] == documents[1] == documents[2]


def test_a_table_and_a_json_file(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.json"
    assert run(trace, "--policy", "fifo", "--json", target) == 0
    assert json.loads(target.read_text())["runs"][0]["jobs"] == 4
    shown = capsys.readouterr().out
    assert "small: 4 jobs on 128 devices" in shown
    assert "fifo" in shown and "DSR" in shown


def test_synthetic_needs_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--synthetic", "jobs=12,gap=600,seed=1,best_effort=0.5", "--policy", "fifo", "-o", "json") == 0
    (entry,) = read_json(capsys)["runs"]
    assert entry["jobs"] == 12
    assert 0 < entry["best_effort_jobs"] < 12
    assert entry["finished"] == 12


def test_the_optimum_is_added_to_each_run(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(trace, "--policy", "edf", "--optimum", "--json", "-", "--overhead", "none") == 0
    (entry,) = read_json(capsys)["runs"]
    assert entry["met"] <= entry["optimum_upper"]
    assert entry["optimum_lower"] <= entry["optimum_upper"] == 3


def test_two_traces_of_one_name_are_told_apart(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "more" / trace.name
    other.parent.mkdir()
    other.write_text(trace.read_text())
    assert run(trace, other, "--policy", "fifo", "-o", "json") == 0
    assert [entry["trace"] for entry in read_json(capsys)["runs"]] == [str(trace), str(other)]


def test_skipped_rows_are_counted_and_reported(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace.write_text(trace.read_text() + "e,5,100,resnet50,1,64,1,10\nf,5,100,llama,100,64,1,10\n")
    assert run(trace, "--policy", "fifo", "--skip-bad-rows", "--json", "-") == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document["runs"][0]["jobs"] == 4
    assert document["skipped_rows"] == {"small": 2}
    assert "skipped 2 bad rows" in shown.err and "line 6" in shown.err


def test_jobs_that_prefer_what_the_cluster_lacks_are_reported(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header, *rows = trace.read_text().splitlines()
    typed = tmp_path / "typed.csv"
    typed.write_text("\n".join((f"{header},device_type", *(f"{row},V100" for row in rows))))
    runs = []
    for path in (trace, typed):
        assert run(path, "--policy", "fifo", "-o", "json") == 0
        shown = capsys.readouterr()
        runs.append(json.loads(shown.out)["runs"][0] | {"trace": "", "cpu_s": 0.0, "wall_s": 0.0})
    assert "typed: 4 jobs without the preferred device type: " in shown.err and "'v100'" in shown.err
    assert runs[0] == runs[1]


def test_own_profiles(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "speeds" / "abacus"
    folder.mkdir(parents=True)
    for model in ("resnet50", "vgg16", "bert"):
        (folder / f"{model}.csv").write_text("global_batch_size,1,2\n64,1,2\n128,1,2\n256,1,2\n")
    for given in (folder, folder.parent):
        assert run(trace, "--policy", "fifo", "--cluster", "2x4:abacus", "--profiles", given, "-o", "json") == 0
        assert read_json(capsys)["runs"][0]["gpus"] == 8


def test_a_picture_is_drawn(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / "runs.png"
    assert run(trace, "--policy", "fifo,edf", "--plot", target) == 0
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--policy", "nice"), "unknown policy 'nice'"),
        (("--policy", ""), "unknown policy ''"),
        (("--cluster", "8:a100"), "cluster '8:a100'"),
        (("--cluster", "0x8:a100"), "has no devices"),
        (("--cluster", "4x0:a100"), "has no devices"),
        (("--cluster", "4x8:h900"), "'h900'"),
        (("--overhead", "huge"), "unknown overhead 'huge'"),
        (("--profiles", "nowhere"), "is not a folder"),
        (("--synthetic", "jobs=-1"), "jobs=-1"),
        (("--plot", "picture.doc"), "'.doc'"),
        (("--plot", "nowhere/picture.png"), "does not exist"),
        (("--json", "nowhere/report.json"), "cannot write nowhere/report.json"),
        (("missing.csv",), "missing.csv: cannot be opened"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    trace: Path, words: tuple[str, ...], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    defaults = () if "--policy" in words else ("--policy", "fifo")
    assert run(trace, *defaults, *words) == 2
    shown = capsys.readouterr().err
    assert part in shown
    assert shown.startswith("error: ") and shown.count("\n") == 1


@pytest.mark.parametrize(
    ("row", "part"),
    [
        ("x,5,100,resnet50,100", "5 of the header's 8 columns"),
        ("x,nan,100,resnet50,100,64,1,10", "submission_time 'nan'"),
        ("x,5,100,resnet50,1,64,1,10", "deadline '1' is before"),
        ("x,5,100,resnet50,100,64,0,10", "num_gpu '0'"),
        ("x,5,100,llama,100,64,1,10", "model 'llama'"),
    ],
)
def test_a_bad_row_names_file_and_line(trace: Path, row: str, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    trace.write_text(trace.read_text() + row)
    assert run(trace, "--policy", "fifo") == 2
    shown = capsys.readouterr().err
    assert f"{trace}, line 6: " in shown and part in shown
    assert shown.count("\n") == 1


def test_nothing_to_simulate_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--policy", "fifo") == 2
    assert "nothing to simulate" in capsys.readouterr().err


WORKLOAD = """name,time,application,max_parallelism,batch_size,epochs,enable_heterogeneous_deterministic,preferred_gpu
a,0,bert,4,8,10,1,v100
b,10,bert,4,8,10,0,t4
a,20,bert,4,8,20,1,v100
"""
MINIBATCHES = "application,batch_per_worker,device_type,seconds_per_minibatch\nbert,8,v100,0.5\nbert,8,t4,1.0\n"


@pytest.fixture
def workload(tmp_path: Path) -> tuple[object, ...]:
    """An EasyScale workload with its speeds, as words of the command."""
    (tmp_path / "seconds").mkdir()
    (tmp_path / "seconds" / "seconds.csv").write_text(MINIBATCHES)
    (tmp_path / "workload.csv").write_text(WORKLOAD)
    return tmp_path / "workload.csv", "--profiles", tmp_path / "seconds", "--cluster", "1x4:v100,1x4:t4"


def test_an_easyscale_workload_on_a_mixed_cluster(
    workload: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    policies = "yarn-cs,fifo,fifo-backfill,srtf,easyscale-homo,easyscale-heter,springtide"
    assert run(*workload, "--policy", policies, "--overhead", "constant:20", "-o", "json") == 0
    runs = read_json(capsys)["runs"]
    assert [entry["policy"] for entry in runs] == policies.split(",")
    assert all(entry["jobs"] == entry["finished"] == 3 and list(entry) == FIELDS for entry in runs)
    assert run(*workload, "--policy", "fifo", "--last-of-duplicates", "--time-scale", "2", "-o", "json") == 0
    (entry,) = read_json(capsys)["runs"]
    assert entry["jobs"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cluster", "1x4:h100"), "bert with batch 8 has no speed on device type 'h100'"),
        (("--time-scale", "0"), "time scale 0.0 must be a positive number"),
        (("--optimum",), "--optimum needs a cluster of one device type"),
    ],
)
def test_what_a_mixed_cluster_cannot_do_is_said_in_one_line(
    workload: tuple[object, ...], words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*workload, "--policy", "fifo", *words) == 2
    assert message in capsys.readouterr().err


def test_colocation_reports_what_was_lent_and_given_back(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(trace, "--cluster", "1x8:a100", "--colocation", "days=1,seed=1", "-o", "json") == 0
    (entry,) = read_json(capsys)["runs"]
    assert entry["policy"] == "easyscale-heter" and entry["finished"] == 4
    assert entry["late_reclaims"] == entry["promises_on_borrowed"] == 0
    assert run(trace, "--cluster", "1x8:a100", "--colocation", "days=1") == 0
    assert "easyscale-heter" in capsys.readouterr().out
    assert run(trace, "--cluster", "1x8:a100", "--colocation", "days=1", "--policy", "edf") == 2
    assert "does not give back what is claimed" in capsys.readouterr().err


def test_errors_and_faults_say_which_promises_were_kept(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    errors = ("--speed-error", "0.05", "--faults", "mtbf=200,mttr=1", "--confidence", "0.9")
    assert run(trace, *errors, "--policy", "springtide,fifo", "-o", "json") == 0
    ours, others = read_json(capsys)["uncertain"]
    assert ours["promised"] > 0 and ours["confidence"] == 0.9
    assert (others["promised"], others["said"]) == (0, None)
    assert run(trace, "--faults", "mtbf=-1") == 2
    assert "mtbf=-1.0 must be positive hours" in capsys.readouterr().err
    assert run(trace, "--confidence", "0.9") == 2
    assert "--confidence: this needs something uncertain" in capsys.readouterr().err
    assert run(trace, "--speed-error", "0.1", "--optimum") == 2
    assert "--optimum: --speed-error, --steps-error and --faults go without it" in capsys.readouterr().err
