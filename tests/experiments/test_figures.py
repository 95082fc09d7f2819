"""Two quick figures end to end against the simulator's own metrics; failures, bad input, and the same bytes twice."""

import csv
import json
import sys
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
from experiments.caches import Cache
from experiments.elasticflow.scenes import STAND_INS
from experiments.figure_context import FigureContext
from experiments.figure_files import make_all
from experiments.figures import FIGURES, Figure, choose_figures
from experiments.findings import Findings, Line
from experiments.simulations import Scene, load_scene
from experiments.sources import Sources
from experiments.tables import make_table

from experiments import figure_files
from springtide.cli.app import main
from springtide.errors import InputError
from springtide.simulator.batches import mute_solvers
from springtide.simulator.front import simulate


def run(*words: str) -> int:
    """The exit code of the command."""
    with pytest.raises(SystemExit) as ended:
        main(["figures", *words])
    return int(ended.value.code or 0)


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV."""
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two figures, made once."""
    out = tmp_path_factory.mktemp("figures")
    assert run("--fig", "6a", "--fig", "elasticflow-10", "--quick", "--jobs", "1", "--out", str(out)) == 0
    return out


def test_rows_are_the_simulators_own_numbers(made: Path) -> None:
    rows = read(made / "elasticflow-6a.csv")
    assert {"edf", "tiresias", "elasticflow", "springtide"} <= {row["policy"] for row in rows}
    trace, cluster = load_scene(Scene("4x8:a100", synthetic=STAND_INS["195job"], first=25))
    for row in rows:
        if row["policy"] in ("edf", "tiresias", "elasticflow"):
            with mute_solvers():
                report = simulate(trace, row["policy"], cluster)
            assert int(row["deadlines_met"]) == report.met + report.met_unpromised
            assert int(row["admitted"]) == report.admitted
            assert float(row["dsr"]) == pytest.approx((report.met + report.met_unpromised) / 25)
            assert float(row["dsr_alone_bound"]) == pytest.approx(report.dsr_alone_bound)


def test_efficiency_is_the_simulators_own(made: Path) -> None:
    rows = {row["policy"]: row for row in read(made / "elasticflow-10.csv")}
    scene = Scene("16x8:a100", synthetic="jobs=100,gap=1500,seed=0,min_factor=1.5,max_factor=1.5")
    trace, cluster = load_scene(scene)
    report = simulate(trace, "elasticflow", cluster)
    assert float(rows["elasticflow"]["makespan_h"]) == pytest.approx(report.makespan_s / 3600)
    assert float(rows["elasticflow"]["cluster_efficiency"]) == pytest.approx(report.cluster_efficiency)


def test_every_figure_leaves_its_files_and_lines(made: Path) -> None:
    for name in ("elasticflow-6a", "elasticflow-10"):
        assert (made / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (made / f"{name}.svg").read_text()
    summary = (made / "summary.md").read_text()
    assert "Synthetic trace by the paper's generator" in summary
    assert "Synthetic trace" in (made / "elasticflow-6a.svg").read_text()
    assert "| elasticflow-6a | elasticflow, deadlines met" in summary
    assert "cpu_s" in (made / "elasticflow-6a.timing.csv").read_text()
    assert "cpu_s" not in (made / "elasticflow-6a.csv").read_text()


def test_a_second_run_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    assert run("--paper", "elasticflow", "--fig", "6a", "--quick", "--jobs", "1", "--out", str(tmp_path)) == 0
    for name in ("elasticflow-6a.csv", "elasticflow-6a.svg", "elasticflow-6a.png"):
        assert (tmp_path / name).read_bytes() == (made / name).read_bytes()


def test_broken_and_foreign_traces_are_named_and_the_rest_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    head = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
    (traces / "good.csv").write_text(
        head + "".join(f"{n},{n * 60},900,bert,{n * 60 + 900},64,1,600\n" for n in range(6))
    )
    (traces / "broken.csv").write_text(head + "1,0,ten,bert,100,64,1,10\n")
    (traces / "foreign.csv").write_text("colour,size\nred,3\n")
    out = tmp_path / "out"
    words = ["--fig", "8b", "--traces", str(traces), "--cluster", "1x8:a100", "--jobs", "1", "--out", str(out)]
    assert run(*words, "-o", "json") == 1
    document = json.loads(capsys.readouterr().out)
    (figure,) = document["figures"]
    assert figure["state"] == "incomplete"
    assert any("broken.csv, line 2" in problem for problem in figure["problems"])
    assert any("foreign.csv: is not a trace" in problem for problem in figure["problems"])
    assert {row["trace"] for row in read(out / "elasticflow-8b.csv")} == {"good"}


def fail(*_: Any) -> Any:
    """A defect."""
    raise ValueError("a defect of this figure")


def test_a_failed_figure_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Findings(make_table(("a",), [(1,)]), (Line("what", 2.0, 1.0, "Half."),))
    monkeypatch.setattr(Figure, "measure", lambda self, context: fail() if self.number == "6a" else good)
    monkeypatch.setattr(figure_files, "write_files", lambda figure, findings, out: [out / figure.id])
    context = FigureContext(Sources(), Cache(tmp_path / "cache"))
    chosen = choose_figures("elasticflow", ["6"])
    bad, fine = make_all(chosen, tmp_path, context, [], lambda made: None)
    assert (bad.complete, fine.complete) == (False, True)
    assert "a defect of this figure" in bad.error
    assert "| 2.000 | 1.000 | 0.50 |" in (tmp_path / "summary.md").read_text()


def test_a_folder_that_fills_up_fails_figures_with_one_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(figure: Figure, findings: Findings, out: Path) -> list[Path]:
        raise OSError(ENOSPC, "No space left on device", str(out / f"{figure.id}.csv"))

    monkeypatch.setattr(Figure, "measure", lambda self, context: Findings(make_table(("a",), [(1,)]), ()))
    monkeypatch.setattr(figure_files, "write_files", refuse)
    context = FigureContext(Sources(), Cache(tmp_path / "cache"))
    results = make_all(choose_figures("elasticflow", ["6"]), tmp_path, context, [], lambda made: None)
    assert all(
        "6" in made.error and "No space left on device; finished runs are kept" in made.error for made in results
    )
    assert not any(made.trace for made in results)


def test_without_torch_only_training_figures_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_files, "has_module", lambda name: name != "torch")
    good = Findings(make_table(("a",), [(1,)]), ())
    monkeypatch.setattr(Figure, "measure", lambda self, context: good)
    monkeypatch.setattr(figure_files, "write_files", lambda figure, findings, out: [])
    results = make_all(FIGURES, tmp_path, FigureContext(Sources(), Cache(tmp_path)), [], lambda made: None)
    failed = {made.figure.id for made in results if not made.complete}
    assert failed == {figure.id for figure in FIGURES if "torch" in figure.needs}
    assert all("pip install 'springtide[train]'" in made.error for made in results if not made.complete)


def test_with_torch_out_of_reach_a_scheduling_figure_is_drawn_in_full(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run("--fig", "6a", "--fig", "easyscale-11", "--quick", "--jobs", "1", "--out", str(tmp_path)) == 1
    assert (tmp_path / "elasticflow-6a.csv").read_bytes() == (made / "elasticflow-6a.csv").read_bytes()
    assert "easyscale-11: FAILED: needs torch" in capsys.readouterr().err


def test_ids_are_whole_or_short() -> None:
    assert [figure.id for figure in choose_figures(None, ["8a"])] == ["elasticflow-8a"]
    assert [figure.id for figure in choose_figures("easyscale", ["9", "fig10"])] == ["easyscale-9", "easyscale-10"]
    assert [figure.id for figure in choose_figures(None, ["6a/6b"])] == ["elasticflow-6a", "elasticflow-6b"]
    assert choose_figures(None, []) == list(FIGURES)
    with pytest.raises(InputError, match="unknown figure '99'; there are:\n  elasticflow-6a"):
        choose_figures("elasticflow", ["99"])
    with pytest.raises(InputError, match="unknown paper 'pollux'"):
        choose_figures("pollux", [])


def test_bad_input_is_refused_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run("--fig", "6a", "--out", str(tmp_path / "file" / "out")) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert run("--fig", "6a", "--data", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")) == 2
    assert run("--fig", "nothing", "--out", str(tmp_path / "out")) == 2


def test_a_missing_profile_fails_the_figure_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "profiles" / "v100").mkdir(parents=True)
    words = ("--fig", "6a", "--profiles", str(tmp_path / "profiles"), "--jobs", "1", "--out", str(tmp_path / "out"))
    assert run(*words) == 1
    assert "hold nothing for device type 'a100'" in capsys.readouterr().err


def test_every_figure_has_its_two_functions() -> None:
    for figure in FIGURES:
        if not figure.needs:
            assert callable(figure._find(figure.measure_name))
            assert callable(figure._find(figure.draw_name))
