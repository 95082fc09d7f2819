"""Three of the benchmark's seeded workloads, with real processes."""

from pathlib import Path

import pytest
from benchmarks.live_workloads import OUTSIDE_LOAD, run_all


@pytest.mark.slow
def test_no_admitted_job_is_late_or_lost(tmp_path: Path) -> None:
    for result in run_all(tmp_path, [0, 1, 2]):
        assert result.lost == 0
        assert result.late == 0 or result.outside_load > OUTSIDE_LOAD
