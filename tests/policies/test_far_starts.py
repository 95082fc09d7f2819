"""Promises whose starts lie further ahead than a check follows them are kept all the same."""

from collections.abc import Iterable
from heapq import nsmallest

import pytest
from benchmarks.scale import draw

from springtide.placement import feasibility
from springtide.simulator.front import simulate


@pytest.mark.parametrize("seed", range(2))
def test_promises_are_kept_beyond_what_a_check_follows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left_out = 0

    def watched(count: int, growths_s: list[float]) -> Iterable[float]:
        nonlocal left_out
        left_out = max(left_out, len(growths_s) - count)
        return nsmallest(count, growths_s)

    monkeypatch.setattr(feasibility, "FOLLOWED", 4)
    monkeypatch.setattr(feasibility, "nsmallest", watched)
    report = simulate(draw(300, 64, seed), "springtide", "8x8:a100")
    assert report.late_admitted == 0
    assert left_out > 4, "more starts were to come than were followed, and as many again"
