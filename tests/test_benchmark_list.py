"""The list of benchmarks is complete, and one that fails or lacks data does not stop the others."""

from pathlib import Path

import benchmarks
import pytest
from benchmarks.__main__ import BENCHMARKS, Benchmark, Outcome, choose, main, run_all
from benchmarks.elasticflow_data import require_data

FOLDER = Path(benchmarks.__file__).parent


def test_every_module_that_can_be_run_is_listed() -> None:
    modules = {path.stem: path.read_text() for path in FOLDER.glob("*.py") if path.stem != "__main__"}
    runnable = {name for name, text in modules.items() if 'if __name__ == "__main__":' in text}
    assert {benchmark.name for benchmark in BENCHMARKS} == runnable
    for benchmark in BENCHMARKS:
        assert benchmark.needs_data == (
            '"--data"' in modules[benchmark.name] or "data_option(" in modules[benchmark.name]
        )


def test_a_failure_does_not_stop_the_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chosen = [Benchmark("good"), Benchmark("bad"), Benchmark("hungry", needs_data=True), Benchmark("last")]
    endings = run_all(chosen, None, launch=lambda name: int(name == "bad"))
    assert [ending.outcome for ending in endings] == [Outcome.DONE, Outcome.FAILED, Outcome.SKIPPED, Outcome.DONE]
    assert "$SPRINGTIDE_DATA" in capsys.readouterr().out
    fed = run_all(chosen[2:3], tmp_path, launch=lambda name: 0)
    assert fed[0].outcome is Outcome.DONE


def test_benchmarks_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert [benchmark.name for benchmark in choose(["planner"])] == ["planner"]
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [benchmark.name for benchmark in BENCHMARKS]
    with pytest.raises(SystemExit, match="unknown benchmark 'plaaner'; there are: decisions"):
        choose(["plaaner"])


def test_a_benchmark_without_its_data_is_refused_as_bad_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for folder in (None, tmp_path):
        with pytest.raises(SystemExit) as caught:
            require_data(folder)
        assert caught.value.code == 2
        assert "profiles/TYPE/MODEL.csv" in capsys.readouterr().err
    (tmp_path / "profiles").mkdir()
    assert require_data(tmp_path) == tmp_path
