"""Promises whose starts lie further ahead than a check follows them are kept all the same."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import nsmallest
from math import inf

import pytest
from benchmarks.scale import draw

from springtide.core.decisions import Decision, Plan, Snapshot
from springtide.core.jobs import Job, JobId
from springtide.placement import feasibility
from springtide.placement.buddy import Placement
from springtide.placement.feasibility import Certificate, Feasibility, Horizon, check_plans, find_horizon_s
from springtide.policies.planning import admission
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


def test_a_check_that_is_told_its_horizon_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The horizon that is read from columns, and those who change by then, are all that a look at every job finds.

    So does a check that goes on from where the decision was placed, or from where the check before it ended.
    """
    checked = went_on = 0

    def check_both(
        now_s: float,
        snapshot: Snapshot,
        decision: Decision,
        plans: Mapping[JobId, Plan],
        horizon: Horizon,
        placement: Placement | None,
        certificate: Certificate | None,
    ) -> Feasibility:
        nonlocal checked, went_on
        if certificate is not None and placement is not None:
            went_on += certificate.holds(now_s, snapshot, placement.allocations, plans)
        told = check_plans(now_s, snapshot, decision, plans, horizon, placement, certificate)
        looked = check_plans(now_s, snapshot, decision, plans)
        assert told == looked
        assert horizon.until_s == find_horizon_s(now_s, plans)
        assert (told.certificate is None) == (looked.certificate is None)
        if told.certificate is not None and looked.certificate is not None:
            later = [step for step in looked.certificate.steps if step[0] > now_s]
            assert [step for step in told.certificate.steps if step[0] > now_s] == later
        checked += 1
        return told

    monkeypatch.setattr(admission, "check_plans", check_both)
    mixed = [*draw(200, 64, 0).jobs, *(replace_deadline(job) for job in draw(40, 64, 1).jobs)]
    simulate([replace(job, index=index) for index, job in enumerate(mixed)], "springtide", "8x8:a100")
    assert checked > 100 and went_on > 10


def replace_deadline(job: Job) -> Job:
    """The same job under another name and without a deadline."""
    return replace(job, id=JobId(f"free-{job.index}"), deadline_s=inf)
