"""Three of the benchmark's seeded workloads with real processes, and how a run is kept and summed up."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from benchmarks.live_workloads import OUTSIDE_LOAD, Result, make_document, read_results, run_all

QUIET = Result(0, 5, 4, 3, 3, 0, 0, 3, 2, 0.02, 20.0)
LOADED = replace(QUIET, seed=1, met=2, late=1, simulated_met=3, outside_load=0.4)


@pytest.mark.slow
def test_no_admitted_job_is_late_or_lost(tmp_path: Path) -> None:
    results = run_all(tmp_path, [0, 1, 2])
    assert [result.seed for result in results] == [0, 1, 2]
    for result in results:
        assert result.lost == 0
        assert result.late == 0 or result.outside_load > OUTSIDE_LOAD


def test_a_run_goes_on_where_it_ended_even_if_a_line_was_cut_short(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    assert read_results(kept, range(9)) == []
    lines = [json.dumps(asdict(result)) for result in (QUIET, LOADED, replace(QUIET, seed=70))]
    kept.write_text("\n".join([*lines, lines[0][:20]]))
    assert read_results(kept, range(9)) == [QUIET, LOADED]


def test_loaded_workloads_are_pooled_apart() -> None:
    pooled = make_document([QUIET, LOADED])["pooled"]
    assert (pooled["quiet"]["late"], pooled["loaded"]["late"], pooled["all"]["late"]) == (0, 1, 1)
    assert (pooled["quiet"]["live_dsr"], pooled["quiet"]["apart_points"]) == (0.75, 0.0)
    assert pooled["loaded"]["apart_points"] == 25.0
