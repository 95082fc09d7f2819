"""Rehearsing plans: examples by hand, and that plans which passed can be followed."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.placement.small_clusters import SmallCluster, build_cluster, build_job, check_books, reserve_for

from springtide.core.decisions import Decision, Plan, Promise, Segment
from springtide.core.devices import NodeSlice
from springtide.core.jobs import FREE, JobId, Overhead
from springtide.placement.buddy import arrange
from springtide.placement.feasibility import FOLLOWED, Certificate, Feasibility, Step, check_plans, find_horizon_s

PAUSE_S = 10.0


def plan_of(*segments: tuple[float, int], finish_s: float = 1000.0, reserve_s: float = 0.0) -> Plan:
    return Plan(tuple(Segment(start_s, share) for start_s, share in segments), finish_s, finish_s + reserve_s)


def check_on(
    small: SmallCluster, plans: Mapping[JobId, Plan], shares: Mapping[JobId, int] | None = None
) -> Feasibility:
    promises = {job_id: Promise(1e9, plan) for job_id, plan in plans.items()}
    decision = Decision(shares=shares or {}, promises=promises)
    return check_plans(small.now_s, small.world.snapshot(), decision, plans)


def crowded(second_finish_s: float = 1000.0) -> tuple[SmallCluster, JobId, JobId, JobId]:
    """Two nodes of two devices, one job on each since 100 s ago, and a new job."""
    small = SmallCluster(build_cluster("2x2:a100"), now_s=-100.0)
    jobs = small.hold(0, (0, 0b01), work=1090.0), small.hold(1, (1, 0b01), work=90.0 + second_finish_s)
    small.now_s = 0.0
    return small, *jobs, small.arrive(2)


def test_plans_without_a_start_or_growth_to_come_are_fine() -> None:
    small, first, second, _ = crowded()
    plans = {first: plan_of((0.0, 1)), second: plan_of((0.0, 1))}
    assert check_on(small, plans) == Feasibility(True)


def test_a_start_that_needs_a_move_no_one_has_reserved_fails() -> None:
    small, first, second, new = crowded()
    plans = {first: plan_of((0.0, 1)), second: plan_of((0.0, 1)), new: plan_of((50.0, 2))}
    assert check_on(small, plans) == Feasibility(False, new, 50.0)


def test_a_reserve_pays_for_the_move() -> None:
    small, first, second, new = crowded()
    plans = {first: plan_of((0.0, 1)), second: plan_of((0.0, 1), reserve_s=PAUSE_S), new: plan_of((50.0, 2))}
    assert check_on(small, plans).ok


def test_a_reserve_pays_only_once() -> None:
    small, mover, stayer, pair = crowded(second_finish_s=190.0)
    other, later = small.arrive(3), small.arrive(4)
    plans = {
        mover: plan_of((0.0, 1), reserve_s=PAUSE_S),
        stayer: plan_of((0.0, 1), finish_s=190.0),
        pair: plan_of((50.0, 2), finish_s=100.0),
        other: plan_of((150.0, 2), finish_s=180.0),  # the mover and the stayer still sit together: fits
    }
    assert check_on(small, plans).ok
    # two singles then fill the free node, the stayer and one of them end, and a pair needs the mover once more
    singles = [small.arrive(5), small.arrive(6)]
    plans |= {
        single: plan_of((185.0, 1), finish_s=finish_s) for single, finish_s in zip(singles, (190.0, 900.0), strict=True)
    }
    plans[later] = plan_of((200.0, 2))
    assert check_on(small, plans) == Feasibility(False, later, 200.0)
    plans[mover] = plan_of((0.0, 1), reserve_s=2 * PAUSE_S)
    assert check_on(small, plans).ok


def test_a_move_in_the_decision_itself_spends_the_reserve() -> None:
    small, first, second, new = crowded()
    plans = {first: plan_of((0.0, 1), reserve_s=PAUSE_S), second: plan_of((0.0, 1)), new: plan_of((0.0, 2))}
    assert check_on(small, plans, {new: 2}).ok
    plans[first] = plan_of((0.0, 1))
    assert check_on(small, plans, {new: 2}) == Feasibility(False, new, 0.0)  # in time, but beyond its reserve
    promises = {first: Promise(1000.0, plans[first]), second: Promise(1000.0, plans[second])}
    decision = Decision(shares={new: 2}, promises=promises)
    assert check_plans(0.0, small.world.snapshot(), decision, plans) == Feasibility(False, new, 0.0)


def test_jobs_without_a_plan_make_way() -> None:
    small, first, _, new = crowded()
    assert check_on(small, {first: plan_of((0.0, 1)), new: plan_of((50.0, 2))}).ok


def test_a_move_costs_nothing_where_pauses_are_free() -> None:
    small = SmallCluster(build_cluster("2x2:a100"))
    plans = {}
    for index in range(2):
        job = build_job(index, work=100.0, overhead=FREE)
        small.world.arrive(job, 0.0)
        plans[job.id] = plan_of((0.0, 1))
    new = small.arrive(2)
    ids = list(plans)
    small.place({ids[0]: 2, ids[1]: 1})
    small.place({ids[0]: 1})  # one on each node
    assert check_on(small, plans | {new: plan_of((50.0, 2))}).ok


def test_devices_are_held_for_the_reserve() -> None:
    small = SmallCluster(build_cluster("1x2:a100"))
    job, new = small.hold(0, (0, 0b11), work=100.0), small.arrive(1)
    plans = {job: plan_of((0.0, 2), finish_s=50.0, reserve_s=PAUSE_S), new: plan_of((55.0, 2))}
    assert check_on(small, plans) == Feasibility(False, new, 55.0)
    assert check_on(small, plans | {new: plan_of((60.0, 2))}).ok


def test_plans_that_overlap_by_a_rounding_are_fine() -> None:
    small = SmallCluster(build_cluster("1x2:a100"))
    job, new = small.hold(0, (0, 0b11), work=100.0), small.arrive(1)
    plans = {job: plan_of((0.0, 2), finish_s=50.0, reserve_s=PAUSE_S), new: plan_of((60.0 - 1e-9, 2))}
    assert check_on(small, plans).ok
    assert check_on(small, plans | {new: plan_of((60.0 - 1e-3, 2))}) == Feasibility(False, new, 60.0 - 1e-3)


def test_a_job_grown_into_spare_devices_goes_back_to_its_planned_share() -> None:
    small = SmallCluster(build_cluster("1x4:a100"))
    job, new = small.hold(0, (0, 0xF), work=100.0), small.arrive(1)
    assert check_on(small, {job: plan_of((0.0, 2)), new: plan_of((50.0, 2))}).ok


# --- certificates ---------------------------------------------------------------------------------------------------


def certify(small: SmallCluster, plans: Mapping[JobId, Plan]) -> Certificate:
    certificate = check_on(small, plans).certificate
    assert certificate is not None
    return certificate


def covers(
    certificate: Certificate, small: SmallCluster, plans: Mapping[JobId, Plan], shares: Mapping[JobId, int]
) -> bool:
    """Whether all is as it foresaw, and it came as far as a check would from now on."""
    allocations = small.arrange(shares).allocations
    holds = certificate.holds(small.now_s, small.world.snapshot(), allocations, plans)
    return holds and find_horizon_s(small.now_s, plans) <= certificate.until_s


def test_a_certificate_covers_what_follows_it_to_the_letter() -> None:
    small, first, second, new = crowded()
    plans = {first: plan_of((0.0, 1)), second: plan_of((0.0, 1)), new: plan_of((50.0, 1), (70.0, 2))}
    plans[second] = plan_of((0.0, 1), reserve_s=PAUSE_S)
    certificate = certify(small, plans)
    assert covers(certificate, small, plans, {})
    small.now_s = 49.0
    assert covers(certificate, small, plans, {})
    small.now_s = 50.0
    assert covers(certificate, small, plans, {new: 1})
    assert not covers(certificate, small, plans, {})


def test_a_certificate_does_not_cover_another_plan_or_place() -> None:
    small, first, second, new = crowded()
    plans = {first: plan_of((0.0, 1)), second: plan_of((0.0, 1), reserve_s=PAUSE_S), new: plan_of((50.0, 2))}
    certificate = certify(small, plans)
    assert not covers(certificate, small, plans | {new: plan_of((50.0, 1))}, {})
    assert not covers(certificate, small, plans | {small.arrive(3): plan_of((60.0, 1))}, {})
    small.finish(second)
    assert not covers(certificate, small, {first: plans[first], new: plans[new]}, {})
    small, first, second, new = crowded()
    small.world.apply(Decision(allocations={first: (NodeSlice(0, 0b10),)}), 0.0)
    assert not covers(certificate, small, plans, {})


def test_a_certificate_does_not_cover_a_job_whose_progress_was_corrected() -> None:
    small, first, second, new = crowded()
    plans = {first: plan_of((0.0, 1)), second: plan_of((0.0, 1), reserve_s=PAUSE_S), new: plan_of((50.0, 2))}
    certificate = certify(small, plans)
    view = small.world.jobs[first]
    small.now_s = 10.0
    small.world.observe(first, replace(view.progress, work_left=2000.0, since_s=10.0), small.now_s)
    assert not covers(certificate, small, plans, {})


def test_nothing_is_certified_while_a_promised_job_is_moved() -> None:
    small, first, second, new = crowded()
    plans = {first: plan_of((0.0, 1), reserve_s=PAUSE_S), second: plan_of((0.0, 1)), new: plan_of((0.0, 2))}
    plans[small.arrive(3)] = plan_of((1100.0, 2), finish_s=2000.0)
    found = check_on(small, plans, {new: 2})
    assert (found.ok, found.certificate) == (True, None)


def test_nothing_is_certified_where_nothing_starts_or_fails() -> None:
    small, first, second, new = crowded()
    plans = {first: plan_of((0.0, 1)), second: plan_of((0.0, 1))}
    assert check_on(small, plans).certificate is None
    assert check_on(small, plans | {new: plan_of((50.0, 2))}).certificate is None


# --- only so far ----------------------------------------------------------------------------------------------------


def queue_up(small: SmallCluster, plans: dict[JobId, Plan], starts: int) -> None:
    """So many pairs, one after the other from 10 s on, each on the node that the two small jobs leave."""
    for number in range(starts):
        plans[small.arrive(100 + number)] = plan_of((10.0 + number, 2), finish_s=10.9 + number)


@pytest.mark.parametrize(("before", "ok"), [(FOLLOWED - 1, False), (FOLLOWED, True)])
def test_a_check_follows_so_many_starts_and_no_more(before: int, ok: bool) -> None:
    small = SmallCluster(build_cluster("3x2:a100"), now_s=-100.0)
    jobs = small.hold(0, (0, 0b01), work=1090.0), small.hold(1, (1, 0b01), work=1090.0)
    small.now_s = 0.0
    plans = {job: plan_of((0.0, 1)) for job in jobs}
    queue_up(small, plans, before)
    # both nodes of the small jobs are half free: a third pair beside one that stays needs a move that nobody reserved
    last_s = 10.0 + before
    plans[small.arrive(1000)] = plan_of((last_s, 2), finish_s=last_s + 50.0)
    plans[small.arrive(1001)] = plan_of((last_s, 2), finish_s=last_s + 50.0)
    assert check_on(small, plans).ok == ok


def test_a_certificate_covers_no_check_that_would_go_further() -> None:
    small = SmallCluster(build_cluster("3x2:a100"), now_s=0.0)
    plans: dict[JobId, Plan] = {}
    queue_up(small, plans, FOLLOWED + 1)
    certificate = certify(small, plans)
    assert certificate.until_s == 10.0 + FOLLOWED - 1
    assert covers(certificate, small, plans, {})
    small.now_s = 10.0
    first = next(iter(plans))
    assert not covers(certificate, small, plans, {first: 2})  # what begins now makes room for one more to be followed


def test_a_check_goes_on_from_the_one_before_it() -> None:
    """Who comes late in the queue changes nothing for those before: only what lies beyond them is followed anew."""
    small = SmallCluster(build_cluster("3x2:a100"), now_s=0.0)
    plans: dict[JobId, Plan] = {}
    queue_up(small, plans, FOLLOWED - 1)
    certificate = certify(small, plans)
    plans = {**plans, small.arrive(1000): plan_of((500.0, 2), finish_s=510.0)}
    promises = {job_id: Promise(1e9, plan) for job_id, plan in plans.items()}
    snapshot, decision = small.world.snapshot(), Decision(promises=promises)
    found = check_plans(0.0, snapshot, decision, plans, None, small.arrange({}), certificate).certificate
    assert found is not None
    assert found.steps[: len(certificate.steps)] == certificate.steps
    assert all(mine is theirs for mine, theirs in zip(found.steps, certificate.steps, strict=False))
    assert found.until_s == 500.0 and list(found.steps[-1][1]) == [JobId("j1000")]


# --- plans that passed can be followed --------------------------------------------------------------------------

Leg = tuple[int, int]  # (share as a power of two, ticks)
legs = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=3)
itineraries = st.lists(st.tuples(st.integers(0, 10), legs), min_size=2, max_size=16)
TICK_S = 60.0


def draft(start: int, course: list[Leg], reserve_s: float | None) -> tuple[Plan, float]:
    """A plan of these legs and the work it does; with the reserve for one move at any time unless another is given."""
    at_s, work, segments, share = start * TICK_S, 0.0, [], 0
    for power, ticks in course:
        if 1 << power != share:
            share = 1 << power
            segments.append(Segment(at_s, share))
            work -= share * PAUSE_S
        at_s += ticks * TICK_S
        work += share * ticks * TICK_S
    if reserve_s is None:
        reserve_s = reserve_for(build_job(0), [segment.share for segment in segments])
    return Plan(tuple(segments), at_s, at_s + reserve_s), work


def fits(plans: list[Plan], plan: Plan, total: int) -> bool:
    """Whether the plans never need more devices than there are."""
    everyone = [*plans, plan]
    starts_s = [segment.start_s for other in everyone for segment in other.segments]
    return all(sum(other.share_at(start_s) for other in everyone) <= total for start_s in starts_s)


def draft_all(courses: list[tuple[int, list[Leg]]], small: SmallCluster, reserve_s: float | None) -> dict[JobId, Plan]:
    """As many plans as the devices allow, each promised to a job in the yard."""
    plans: dict[JobId, Plan] = {}
    for index, (start, course) in enumerate(courses):
        plan, work = draft(start, course, reserve_s)
        if fits(list(plans.values()), plan, small.cluster.total):
            job = build_job(index, work, plan.held_until_s, Overhead(base_s=PAUSE_S))
            small.world.arrive(job, 0.0)
            plans[job.id] = plan
    return plans


def list_steps(certificate: Certificate | None, now_s: float) -> list[Step] | None:
    """What a certificate foresees from now on."""
    return None if certificate is None else [step for step in certificate.steps if step[0] > now_s]


def follow(small: SmallCluster, plans: Mapping[JobId, Plan], certificate: Certificate | None) -> None:
    """Carry out the plans to the letter: at each instant its ends, then the decision that the plans imply.

    As long as the certificate holds, the plans pass another check, which finds the same as one that goes on from it.
    """
    promises = {job_id: Promise(plan.held_until_s, plan) for job_id, plan in plans.items()}
    small.world.apply(Decision(promises=promises), 0.0)
    changes_s = {segment.start_s for plan in plans.values() for segment in plan.segments}
    for now_s in sorted(changes_s | {plan.held_until_s for plan in plans.values()}):
        small.now_s = now_s
        for job_id, plan in plans.items():
            if plan.held_until_s == now_s:
                assert small.world.jobs[job_id].progress.finish_s <= now_s + 1e-6
                small.finish(job_id)
        snapshot = small.world.snapshot()
        shares = {job_id: plans[job_id].share_at(now_s) for job_id in snapshot.jobs}
        decision = Decision(shares={id_: share for id_, share in shares.items() if share != snapshot.jobs[id_].share})
        placement = arrange(now_s, snapshot, decision)
        assert not placement.forced
        left = {job_id: plans[job_id] for job_id in snapshot.jobs}
        anew = check_plans(now_s, snapshot, decision, left)
        if certificate and certificate.holds(now_s, snapshot, placement.allocations, left):
            event("covered")
            assert anew.ok
        going_on = check_plans(now_s, snapshot, decision, left, None, placement, certificate)
        assert going_on == anew
        assert list_steps(going_on.certificate, now_s) == list_steps(anew.certificate, now_s)
        certificate = going_on.certificate
        small.world.apply(Decision(allocations=placement.allocations), now_s)
        check_books(small)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["2x4:a100", "3x4:a100", "2x8:a100", "4x2:a100"]), itineraries, st.sampled_from([None, PAUSE_S]))
def test_plans_that_passed_are_kept_when_followed(
    cluster: str, courses: list[tuple[int, list[Leg]]], reserve_s: float | None
) -> None:
    small = SmallCluster(build_cluster(cluster))
    plans = draft_all(courses, small, reserve_s)
    assume(len(plans) > 1)
    found = check_plans(-1.0, small.world.snapshot(), Decision(), plans)
    event(f"passed: {found.ok}")
    if found.ok:
        follow(small, plans, found.certificate)


@settings(deadline=None)
@given(st.sampled_from(["2x4:a100", "3x8:a100"]), itineraries)
def test_with_ample_reserves_every_feasible_plan_passes(cluster: str, courses: list[tuple[int, list[Leg]]]) -> None:
    small = SmallCluster(build_cluster(cluster))
    plans = draft_all(courses, small, reserve_s=100 * PAUSE_S)
    promises = {job_id: Promise(1e9, plan) for job_id, plan in plans.items()}
    assert check_plans(-1.0, small.world.snapshot(), Decision(promises=promises), plans).ok
