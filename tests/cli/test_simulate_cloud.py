"""`springtide simulate --cloud` as users and scripts run it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.throughput.made_up_points import make_points

from springtide.cli.app import main
from springtide.throughput.tables.points import write_points

BASE = ("simulate", "--cloud", "aws", "--region", "us-east-1", "--type", "T4")
HEADER = "time_s,type,zone,available,price\n"


@pytest.fixture(autouse=True)
def no_refreshed_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "points.csv"
    path.write_text(write_points(make_points("net", "T4")), encoding="utf-8")
    return ("--points", str(path), "--steps", "500000", "--global-batch", "256", "--logical-workers", "16")


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def read(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_spot_and_on_demand_are_simulated_side_by_side(
    job: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*BASE, *job, "--deadline", "40h", "--seeds", "2", "--json", "-") == 0
    document = read(capsys)
    runs = document["runs"]
    assert [(entry["seed"], entry["spot"]) for entry in runs] == [(0, False), (0, True), (1, False), (1, True)]
    assert all(entry["synthetic"] for entry in runs)
    assert document["synthetic"]
    assert document["spot"]["cost_usd"] < document["on_demand"]["cost_usd"]


def test_the_table_names_synthetic_traces_and_sums_up(
    job: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(*BASE, *job, "--deadline", "40h", "--seeds", "1", "--json", "report.json") == 0
    shown = capsys.readouterr()
    assert "synthetic (seed 0)" in shown.out
    assert "prices and revocations are synthetic" in shown.out
    assert "days old" in shown.err
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["schema"] == 1


def test_a_trace_file_by_zone_drives_prices_and_losses(
    job: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "spot.csv").write_text(
        HEADER
        + "0,g4dn.12xlarge,us-east-1b,1,0.9\n7200,g4dn.12xlarge,us-east-1b,0,0.9\n9000,g4dn.12xlarge,us-east-1c,1,1\n",
        encoding="utf-8",
    )
    assert run(*BASE, "spot.csv", *job, "--seeds", "1", "-o", "json") == 0
    document = read(capsys)
    plain, spot = document["runs"]
    assert not document["synthetic"]
    assert spot["trace"] == "spot.csv"
    assert "us-east-1b" in spot["events"][0]["plan"]
    assert (plain["revocations"], spot["revocations"]) == (0, 1)


def test_without_points_an_example_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("simulate", "--cloud", "--region", "us-east-1", "--seeds", "1", "-o", "json") == 0
    shown = capsys.readouterr()
    assert "an example" in shown.err
    assert json.loads(shown.out)["job"]["model"] == "resnet50"


def test_its_options_alone_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("simulate", "--synthetic", "jobs=5", "--deadline", "6h") == 2
    assert "need --cloud" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "10"], "needs its points"),
        (["nowhere.csv"], "nowhere.csv: cannot be read"),
        (["a.csv", "b.csv"], "takes one spot trace"),
        (["strange.csv"], "no type and zone of it is in the catalog"),
        (["bad.csv"], "bad.csv, line 2: available 'maybe' must be 1 or 0"),
        (["--deadline", "soon"], "deadline 'soon'"),
        (["--region", "mars-1"], "region 'mars-1' is not in the catalog"),
    ],
)
def test_bad_input_ends_with_code_2(
    words: list[str], message: str, job: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "strange.csv").write_text(HEADER + "0,abacus,attic,1,1\n", encoding="utf-8")
    (tmp_path / "bad.csv").write_text(HEADER + "0,g4dn.xlarge,us-east-1,maybe,1\n", encoding="utf-8")
    given = [] if words[0] == "--steps" else job
    assert run(*BASE, *given, *words) == 2
    assert message in capsys.readouterr().err


def test_a_recorded_market_is_replayed_under_every_spot_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    market = tmp_path / "market.csv"
    market.write_text("time_s,zone,count,price\n0,a,5,1.0\n7200,a,16,1.0\n")
    words = ("simulate", "--cloud", "--spot-trace", str(market), "--length", "10h", "--deadline", "15h")
    assert run(*words, "-o", "json") == 0
    runs = read(capsys)["runs"]
    assert [one["policy"] for one in runs] == ["on-demand", "greedy", "uniform-progress", "elastic"]
    assert all(one["met"] for one in runs)
    assert run(*words[:4], "--deadline", "15h") == 2
    assert "--spot-trace needs --length" in capsys.readouterr().err
    assert run(*words[:6], "--deadline", "9h") == 2
    assert "cannot be met" in capsys.readouterr().err
    assert run(*words, "--points", str(market)) == 2
    assert "--spot-trace replays machines alike" in capsys.readouterr().err
    assert run("simulate", "--cloud", "--length", "10h") == 2
    assert "need --spot-trace" in capsys.readouterr().err
