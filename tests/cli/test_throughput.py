"""`springtide throughput` as users and scripts run it."""

import json
from pathlib import Path

import pytest
from tests.throughput.made_up_points import make_points, make_step_s

from springtide.cli.app import main
from springtide.throughput.tables.points import write_points


@pytest.fixture
def points(tmp_path: Path) -> Path:
    path = tmp_path / "points.csv"
    places = ((1, 1), (1, 4), (2, 8), (4, 16))
    path.write_text(write_points(make_points(places=places)), encoding="utf-8")
    return path


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def run(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def test_fit_predicts_in_the_order_of_the_query(
    points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = write(
        tmp_path / "query.csv",
        "id,model,device_type,nodes,devices,local_batch\n7,net,x100,8,32,16\n3,net,x100,1,2,16\n",
    )
    assert run("throughput", "fit", points, "--predict", query, "--json", "-") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    first, second = document["predictions"]
    assert (first["id"], second["id"]) == (7, 3)
    assert (first["model"], first["devices"], first["local_batch"], first["form"]) == ("net", 32, 16, "physical")
    assert first["low_s"] < first["step_s"] < first["high_s"]
    assert first["step_s"] == pytest.approx(make_step_s(8, 32, 16), rel=0.08)
    assert "beyond the 16 devices measured" in first["note"]
    assert second["note"] == ""


def test_a_measured_column_of_the_query_is_kept_apart(points: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("throughput", "fit", points, "--predict", points, "--form", "nearest", "-o", "json") == 0
    for row in json.loads(capsys.readouterr().out)["predictions"]:
        assert row["step_s"] == pytest.approx(row["measured_s"])


def test_a_prior_file_is_used(points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = [point for name in ("a", "b", "c") for point in make_points(name)]
    prior = write(tmp_path / "others.csv", write_points(others))
    assert run("throughput", "fit", points, "--predict", points, "--prior", prior, "--json", "-") == 0
    assert len(json.loads(capsys.readouterr().out)["predictions"]) == 16


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["net,t4,1,1,16,0.1"], "single point"),
        (["net,t4,1,1,16,0.1", "net,t4,1,1,16,0.9"], "took both"),
        (["net,t4,1,1,16,0.1", "net,t4,1,2,16,-3"], "line 3"),
    ],
)
def test_bad_points_end_with_code_2_and_a_line(
    rows: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "model,device_type,nodes,devices,local_batch,step_s"
    path = write(tmp_path / "bad.csv", "\n".join([header, *rows]) + "\n")
    query = write(tmp_path / "query.csv", "model,device_type,nodes,devices,local_batch\nnet,t4,1,2,16\n")
    assert run("throughput", "fit", path, "--predict", query) == 2
    assert words in capsys.readouterr().err


def test_import_writes_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a100"
    folder.mkdir()
    write(folder / "net.csv", "global_batch_size,1,2\n64,2,3.5\n")
    assert run("throughput", "import", folder, "--format", "elasticflow") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "model,device_type,nodes,devices,local_batch,step_s,max_per_node,sync_s"
    assert lines[1] == "net,a100,1,1,64,0.5,1,"
    assert run("throughput", "import", folder, "--format", "elasticflow", "-o", "json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 2
    out = tmp_path / "points.csv"
    assert run("throughput", "import", folder, "--format", "elasticflow", "--out", out, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "file": str(out), "points": 2, "models": ["net"]}
    assert out.read_text().splitlines() == lines


def test_evaluate_compares_every_form(points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "out.png"
    words = ("--split", "1,4,8:16", "--plot", picture, "-o", "json")
    assert run("throughput", "evaluate", points, *words) == 0
    document = json.loads(capsys.readouterr().out)
    forms = {entry["form"]: entry for entry in document["forms"]}
    assert set(forms) == {"physical + prior", "physical", "pollux", "ernest", "nearest", "one-node", "perfect"}
    assert forms["physical"]["mape"] < forms["perfect"]["mape"]
    assert picture.is_file()


def test_evaluate_prints_a_table(points: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("throughput", "evaluate", points, "--split", "<=8", "--form", "physical,pollux", "--no-prior") == 0
    out = capsys.readouterr().out
    assert "MAPE" in out
    assert "pollux" in out
