"""No mode of a command ignores an option: what it would not use is refused, by name and before anything runs."""

import json
from pathlib import Path

import pytest

from springtide.cli.app import main

DRAWN = ("--synthetic", "jobs=3,gap=600", "--cluster", "1x8:a100", "--policy", "fifo")
MARKET = ("--cloud", "--spot-trace", "market.csv", "--length", "10h", "--deadline", "15h")


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, a trace of a market and a file that is not a receipt: none of them is to be read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit('it was run')\n")
    (tmp_path / "market.csv").write_text("time_s,zone,count,price\n0,a,16,1.0\n")
    (tmp_path / "receipt.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--receipt", "receipt.json", "--kill", "1"), "--kill"),
        (("--receipt", "receipt.json", "--rescale", "2,1"), "--rescale"),
        (("--receipt", "receipt.json", "--steps", "5"), "--steps"),
        (("--receipt", "receipt.json", "--engine", "ray"), "--engine"),
        (("--receipt", "receipt.json", "--against", "self"), "--against"),
        (("--receipt", "receipt.json", "--stock"), "--stock"),
        (("--receipt", "receipt.json", "train.py"), "train.py"),
        (("--stock", "--sizes", "2", "--", "python", "train.py"), "--sizes"),
        (("--stock", "--rescale", "2,1", "--", "python", "train.py"), "--rescale"),
        (("--stock", "--kill", "1", "--", "python", "train.py"), "--kill"),
        (("--stock", "--logical-workers", "2", "--", "python", "train.py"), "--logical-workers"),
        (("--stock", "--engine", "ray", "--", "python", "train.py"), "--engine"),
        (("--stock", "--address", "here:1", "--", "python", "train.py"), "--address"),
        (("--stock", "--record", "a.json", "--times", "3", "--", "python", "train.py"), "--times"),
        (("train.py", "--from", "400"), "--from"),
        (("train.py", "--to", "400", "--logical-workers", "2"), "--to"),
        (("train.py", "--tell-server"), "--tell-server"),
        (("train.py", "--in-place", "--logical-workers", "2"), "--in-place"),
        (("train.py", "--address", "here:1", "--logical-workers", "2"), "--address"),
    ],
)
def test_verify_refuses_what_its_mode_would_ignore(
    words: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", *words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith((f"error: {named}: ", f"error: {named} here:1 ")), shown
    assert "it was run" not in shown


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((*DRAWN, "--colocation", "days=1", "--optimum"), "--optimum"),
        ((*DRAWN, "--colocation", "days=1", "--plot", "a.png"), "--plot"),
        ((*DRAWN, "--colocation", "days=1", "--parallel", "2"), "--parallel"),
        ((*DRAWN, "--speed-error", "0.1", "--parallel", "2"), "--parallel"),
        ((*DRAWN, "--faults", "mtbf=100,mttr=1", "--optimum"), "--optimum"),
        ((*DRAWN, "--faults", "mtbf=100,mttr=1", "--colocation", "days=1"), "--colocation"),
        ((*DRAWN, "--seeds", "3"), "--seeds"),
        ((*DRAWN, "--error-seed", "3"), "--error-seed"),
        (("--cloud", "--policy", "edf"), "--policy"),
        (("--cloud", "--cluster", "1x8:a100"), "--cluster"),
        (("--cloud", "--profiles", "here"), "--profiles"),
        (("--cloud", "--synthetic", "jobs=5"), "--synthetic"),
        (("--cloud", "--plot", "a.png"), "--plot"),
        (("--cloud", "--optimum"), "--optimum"),
        (("--cloud", "--faults", "mtbf=100,mttr=1"), "--faults"),
        (("--cloud", "--colocation", "days=1"), "--colocation"),
        ((*MARKET, "--region", "us-east-1"), "--region"),
        ((*MARKET, "--type", "T4"), "--type"),
        ((*MARKET, "--seeds", "3"), "--seeds"),
        ((*MARKET, "aws"), "aws"),
    ],
)
def test_simulate_refuses_what_its_mode_would_ignore(
    words: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("simulate", *words) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: {named}: "), shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "--receipt", "receipt.json"),
        ("verify", "--stock", "--", "python", "train.py"),
        ("verify", "train.py"),
        ("simulate", *DRAWN),
        ("simulate", "--cloud"),
    ],
)
@pytest.mark.parametrize(("file", "why"), [("no/report.json", "does not exist"), (".", "it is a folder")])
def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(
    words: tuple[str, ...], file: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words[:1], "--json", file, *words[1:]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: cannot write {file}: ") and why in shown


def test_a_refusal_for_programs_is_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", "--receipt", "receipt.json", "--kill", "1", "-o", "json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "input"
