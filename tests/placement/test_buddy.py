"""Placing decisions: examples by hand, then what must hold for any history."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.placement.small_clusters import SmallCluster, build_cluster, check_books, is_compact, promise_until

from springtide.core.decisions import Decision, Promise
from springtide.core.devices import NodeSlice, count_devices
from springtide.core.jobs import JobId
from springtide.errors import PolicyError
from springtide.placement.buddy import Placement, place


def yard_of(text: str, nodes_per_rack: int = 16) -> SmallCluster:
    return SmallCluster(build_cluster(text, nodes_per_rack))


# --- where a share goes -----------------------------------------------------------------------------------------


def test_a_small_share_takes_the_tightest_block_of_the_fullest_node() -> None:
    small = yard_of("3x8:a100")
    small.hold(0, (1, 0x0F))
    small.hold(1, (2, 0x0F))
    small.hold(2, (2, 0x30))
    new = small.arrive(3)
    small.place({new: 2})
    assert small.devices(new) == (NodeSlice(2, 0xC0),)


def test_whole_nodes_come_from_the_rack_with_the_fewest_that_hold_them() -> None:
    small = yard_of("8x4:a100", nodes_per_rack=4)
    small.hold(0, (4, 0xF), (5, 0xF))
    new = small.arrive(1)
    small.place({new: 8})
    assert small.devices(new) == (NodeSlice(6, 0xF), NodeSlice(7, 0xF))


def test_whole_nodes_spread_over_as_few_racks_as_possible() -> None:
    small = yard_of("9x4:a100", nodes_per_rack=3)
    small.hold(0, (0, 0xF), (1, 0xF))
    small.hold(1, (4, 0x1))
    new = small.arrive(2)
    small.place({new: 16})  # the rack of three whole nodes, then the one that has a single one left
    assert [piece.node for piece in small.devices(new)] == [2, 6, 7, 8]


def test_breaking_into_a_whole_node_spares_the_rack_with_many() -> None:
    small = yard_of("4x4:a100", nodes_per_rack=2)
    small.hold(0, (2, 0xF))
    new = small.arrive(1)
    small.place({new: 1})
    assert small.devices(new) == (NodeSlice(3, 0x1),)


@pytest.mark.parametrize(
    ("cluster", "share", "devices"),
    [
        ("2x8:a100", 3, ((0, 0b111),)),
        ("2x8:a100", 12, ((0, 0xFF), (1, 0x0F))),
        ("2x4:t4", 8, ((0, 0xF), (1, 0xF))),
        ("2x6:t4", 8, ((0, 0b111111), (1, 0b110000))),
        ("2x6:t4", 5, ((0, 0b11111),)),
        ("4x1:t4", 3, ((0, 1), (1, 1), (2, 1))),
        ("1x8:a100,2x4:t4", 4, ((1, 0xF),)),
        ("1x8:a100,2x4:t4", 16, ((0, 0xFF), (1, 0xF), (2, 0xF))),
    ],
)
def test_any_share_on_any_nodes(cluster: str, share: int, devices: Sequence[tuple[int, int]]) -> None:
    small = yard_of(cluster)
    new = small.arrive(0)
    placement = small.place({new: share})
    assert small.devices(new) == devices
    assert not placement.scattered


def test_eight_fits_two_small_nodes_when_the_large_one_is_taken() -> None:
    small = yard_of("1x8:a100,2x4:t4")
    small.hold(0, (0, 0x01))
    new = small.arrive(1)
    small.place({new: 8})
    assert small.devices(new) == (NodeSlice(1, 0xF), NodeSlice(2, 0xF))


# --- changes of share -------------------------------------------------------------------------------------------


def test_growth_extends_within_its_block() -> None:
    small = yard_of("2x8:a100")
    job = small.hold(0, (1, 0xC0))
    small.place({job: 4})
    assert small.devices(job) == (NodeSlice(1, 0xF0),)


def test_growth_to_several_nodes_keeps_its_node() -> None:
    small = yard_of("8x4:a100", nodes_per_rack=4)
    job = small.hold(0, (6, 0b0011))
    small.place({job: 8})
    assert [piece.node for piece in small.devices(job)] == [4, 6]


def test_growth_relocates_where_its_block_is_taken_and_moves_no_one() -> None:
    small = yard_of("2x4:a100")
    job = small.hold(0, (0, 0b0011))
    other = small.hold(1, (0, 0b0100))
    placement = small.place({job: 4})
    assert small.devices(job) == (NodeSlice(1, 0xF),)
    assert other not in placement.allocations


def test_a_shrinking_job_keeps_the_part_that_frees_most() -> None:
    small = yard_of("2x8:a100")
    job = small.hold(0, (0, 0xFF), (1, 0x0F))
    small.place({job: 4})
    assert small.devices(job) == (NodeSlice(1, 0x0F),)


def test_a_shrinking_job_leaves_buddies_together() -> None:
    small = yard_of("1x4:a100")
    job = small.hold(0, (0, 0b1110))
    small.place({job: 2})
    assert small.devices(job) == (NodeSlice(0, 0b1100),)


def test_a_scattered_job_becomes_compact_when_it_shrinks() -> None:
    small = yard_of("2x4:a100")
    job = small.hold(0, (0, 0b1000), (1, 0b0110))
    small.place({job: 2})
    assert is_compact(small.devices(job), 4)


def test_a_release_makes_room_within_the_same_decision() -> None:
    small = yard_of("1x4:a100")
    old = small.hold(0, (0, 0xF))
    new = small.arrive(1)
    placement = small.place({new: 4, old: 0})
    assert placement.allocations == {old: (), new: (NodeSlice(0, 0xF),)}


def test_an_unchanged_share_is_left_alone() -> None:
    small = yard_of("1x4:a100")
    job = small.hold(0, (0, 0b0010))
    assert small.arrange({job: 1}).allocations == {}


def test_nothing_asked_nothing_done() -> None:
    small = yard_of("1x4:a100")
    assert place(0.0, small.world.snapshot(), Decision()) == {}


# --- spare devices ----------------------------------------------------------------------------------------------


def test_optional_growth_that_needs_a_move_is_not_done() -> None:
    small = yard_of("1x4:a100")
    job = small.hold(0, (0, 0b0001))
    small.hold(1, (0, 0b0010))
    small.hold(2, (0, 0b0100))
    placement = small.place({job: 2}, optional=[job])
    assert placement.allocations == {}
    assert placement.skipped == (job,)


def test_an_optional_start_that_needs_a_move_is_not_done() -> None:
    small = yard_of("2x2:a100")
    small.hold(0, (0, 0b01))
    small.hold(1, (1, 0b01))
    new = small.arrive(2)
    assert small.place({new: 2}, optional=[new]).allocations == {}


def test_required_changes_come_before_optional_ones() -> None:
    small = yard_of("1x4:a100")
    spare = small.hold(0, (0, 0b0001))
    new = small.arrive(1)
    placement = small.place({spare: 4, new: 2}, optional=[spare])
    assert placement.skipped == (spare,)
    assert count_devices(small.devices(new)) == 2


def test_an_optional_shrink_is_done() -> None:
    small = yard_of("1x4:a100")
    job = small.hold(0, (0, 0xF))
    small.place({job: 1}, optional=[job])
    assert count_devices(small.devices(job)) == 1


# --- making room ------------------------------------------------------------------------------------------------


def crowded(first: Promise | None = None, second: Promise | None = None) -> tuple[SmallCluster, JobId, JobId, JobId]:
    """Two nodes with one free device each, and a job that needs two: one of the others must move."""
    small = yard_of("2x2:a100")
    jobs = small.hold(0, (0, 0b01), promise=first), small.hold(1, (1, 0b01), promise=second)
    small.now_s = 100.0  # their first pause is over
    return small, *jobs, small.arrive(2)


def test_one_move_makes_room() -> None:
    small, first, second, new = crowded()
    placement = small.place({new: 2})
    assert len(placement.moved) == 1
    assert is_compact(small.devices(new), 2)
    assert not placement.forced
    assert {piece.node for piece in (*small.devices(first), *small.devices(second))} in ({0}, {1})


# the jobs hold one device and pause for 10 s after a move
LOOSE, TIGHT, NONE = (promise_until(2e9 + slack_s, 2e9, slack_s) for slack_s in (1000.0, 20.0, 5.0))


def test_a_job_without_a_promise_moves_first() -> None:
    small, _, second, new = crowded(first=LOOSE)
    assert small.place({new: 2}).moved == (second,)


def test_of_promised_jobs_the_one_with_the_most_slack_moves() -> None:
    small, _, second, new = crowded(first=TIGHT, second=LOOSE)
    assert small.place({new: 2}).moved == (second,)


def test_a_job_whose_slack_is_below_its_pause_stays() -> None:
    small, _, second, new = crowded(first=NONE, second=TIGHT)
    placement = small.place({new: 2})
    assert placement.moved == (second,)
    assert not placement.forced


def test_without_an_allowed_victim_the_least_harm_is_done_and_reported() -> None:
    small, _, second, new = crowded(first=promise_until(2e9, 2e9), second=NONE)
    placement = small.place({new: 2})
    assert placement.moved == (second,)
    assert placement.forced == (new,)
    assert placement.late_s == pytest.approx(5.0, abs=1e-5)


def test_a_promise_of_this_very_decision_counts() -> None:
    small, first, second, new = crowded(first=NONE, second=TIGHT)
    decision = Decision(shares={new: 2}, promises={first: LOOSE})
    allocations = place(small.now_s, small.world.snapshot(), decision)
    assert set(allocations) == {first, new}
    assert second not in allocations


def test_a_job_that_was_moved_since_its_plan_was_made_has_less_slack() -> None:
    plan = promise_until(10_030.0, 10_010.0, reserve_s=10.0)  # starts at 0, pauses for 10 s, then 10,000 steps
    small = yard_of("2x2:a100")
    job = small.hold(0, (0, 0b01), promise=plan, work=10_000.0)
    small.now_s = 100.0
    decision = Decision(allocations={job: (NodeSlice(0, 0b10),)})  # the reserve is spent
    small.world.apply(decision, small.now_s)
    other = small.hold(1, (1, 0b01), promise=promise_until(2e9 + 15.0, 2e9, 15.0))
    small.now_s = 200.0
    new = small.arrive(2)
    assert small.place({new: 2}).moved == (other,)


def test_a_job_that_changes_anyway_moves_rather_than_another() -> None:
    small = yard_of("2x4:a100")
    shrinking = small.hold(0, (0, 0b0011))
    small.hold(1, (1, 0b0011))
    new = small.arrive(2)
    placement = small.place({shrinking: 1, new: 4})
    assert placement.moved == ()
    assert count_devices(small.devices(shrinking)) == 1


def test_room_is_made_in_two_steps_if_need_be() -> None:
    small = yard_of("4x4:a100")
    for node in range(4):  # each node: a pair, a single, one free device
        small.hold(2 * node, (node, 0b0011))
        small.hold(2 * node + 1, (node, 0b0100))
    new = small.arrive(8)
    placement = small.place({new: 4})
    assert is_compact(small.devices(new), 4)
    assert len(placement.moved) == 3  # a pair, its single, and a single elsewhere that makes way for the pair
    assert small.free() == 0


def test_an_odd_share_scatters_rather_than_break_a_promise() -> None:
    small = yard_of("2x4:a100")
    strict = promise_until(2e9, 2e9)
    jobs = [small.hold(index, (index, 0b0011), promise=strict) for index in range(2)]
    small.now_s = 100.0
    new = small.arrive(2)
    placement = small.place({new: 3})
    assert placement.scattered == (new,)
    assert set(placement.allocations).isdisjoint(jobs)


def test_more_than_the_cluster_is_refused() -> None:
    small = yard_of("1x4:a100")
    small.hold(0, (0, 0b0001))
    new = small.arrive(1)
    with pytest.raises(PolicyError, match="job j1 cannot have 4 devices: 4 are asked for and 1 stay"):
        small.arrange({new: 4})


# --- any history ------------------------------------------------------------------------------------------------

Round = list[tuple[int, int, bool]]  # which job, which share (as choices), whether optional
rounds = st.lists(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 99), st.booleans()), max_size=5), max_size=12)
REGULAR = ("4x4:a100", "3x8:a100", "8x2:a100", "5x1:a100", "2x16:a100")
IRREGULAR = ("3x6:a100", "2x8:a100,3x4:t4", "4x3:a100", "1x5:a100,3x2:t4")
POWERS = (0, 1, 2, 4, 8, 16)
ANY = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12)


def choose_shares(small: SmallCluster, choices: Round, shares: Sequence[int]) -> tuple[dict[JobId, int], set[JobId]]:
    """A decision that the free devices allow, from arbitrary numbers."""
    free, asked, optional = small.free(), {}, set()
    ids = list(small.world.jobs)
    for job, share, spare in choices:
        job_id, wanted = ids[job], shares[share % len(shares)]
        more = wanted - small.world.jobs[job_id].share
        if job_id not in asked and more <= free:
            asked[job_id] = wanted
            free -= more
            if spare and more > 0:
                optional.add(job_id)
    return asked, optional


def replay(cluster: str, history: list[Round], shares: Sequence[int]) -> tuple[SmallCluster, list[Placement]]:
    small = yard_of(cluster, nodes_per_rack=2)
    for index in range(20):
        small.arrive(index)
    placements = []
    for choices in history:
        small.now_s += 60.0
        asked, optional = choose_shares(small, choices, shares)
        before = {job_id: view.devices for job_id, view in small.world.jobs.items()}
        placement = small.place(asked, optional)
        check_round(small, asked, optional, before, placement)
        placements.append(placement)
    return small, placements


def check_round(
    small: SmallCluster,
    asked: dict[JobId, int],
    optional: set[JobId],
    before: dict[JobId, tuple[NodeSlice, ...]],
    placement: Placement,
) -> None:
    check_books(small)
    assert set(placement.skipped) <= optional
    for job_id, view in small.world.jobs.items():
        done = job_id in asked and job_id not in placement.skipped
        assert view.share == (asked[job_id] if done else count_devices(before[job_id]))
        if view.devices != before[job_id] and not done:
            assert job_id in placement.moved


@settings(deadline=None)
@given(st.sampled_from(REGULAR + IRREGULAR), rounds)
def test_books_balance_for_any_shares_on_any_cluster(cluster: str, history: list[Round]) -> None:
    replay(cluster, history, ANY)


@settings(deadline=None)
@given(st.sampled_from(REGULAR), rounds)
def test_power_of_two_shares_are_always_compact(cluster: str, history: list[Round]) -> None:
    small, placements = replay(cluster, history, POWERS)
    width = small.cluster.full_masks[0].bit_length()
    assert all(is_compact(view.devices, width) for view in small.world.jobs.values() if view.share)
    assert not any(placement.scattered for placement in placements)


@settings(deadline=None)
@given(st.sampled_from(REGULAR), rounds, st.lists(st.sampled_from(POWERS[1:]), max_size=40))
def test_any_feasible_set_of_power_of_two_shares_is_placeable(
    cluster: str, history: list[Round], wanted: list[int]
) -> None:
    small, _ = replay(cluster, history, POWERS)
    shares: dict[JobId, int] = {}
    for index, share in enumerate(wanted):  # as many new jobs as the free devices can hold, all at once
        if sum(shares.values()) + share <= small.free():
            shares[small.arrive(100 + index)] = share
    placement = small.place(shares)
    check_books(small)
    width = small.cluster.full_masks[0].bit_length()
    assert not placement.scattered
    assert all(is_compact(small.devices(job_id), width) for job_id in shares)


@settings(deadline=None)
@given(st.sampled_from(REGULAR), rounds)
def test_merging_restores_the_cluster(cluster: str, history: list[Round]) -> None:
    small, _ = replay(cluster, history, POWERS)
    for job_id in list(small.world.jobs):
        small.finish(job_id)
    assert tuple(small.world.free_masks) == small.cluster.full_masks
    everything = small.arrive(100)
    placement = small.place({everything: small.cluster.total})
    assert small.devices(everything) == tuple(NodeSlice(n, m) for n, m in enumerate(small.cluster.full_masks))
    assert not placement.scattered


@settings(deadline=None)
@given(st.sampled_from(REGULAR + IRREGULAR), rounds)
def test_the_same_history_gives_the_same_devices(cluster: str, history: list[Round]) -> None:
    assert replay(cluster, history, ANY)[1] == replay(cluster, history, ANY)[1]


@settings(deadline=None)
@given(st.sampled_from(REGULAR + IRREGULAR), rounds, st.integers(0, 19), st.sampled_from(ANY[1:]))
def test_optional_growth_moves_no_one(cluster: str, history: list[Round], job: int, share: int) -> None:
    small, _ = replay(cluster, history, ANY)
    job_id = list(small.world.jobs)[job]
    placement = small.arrange({job_id: share}, optional=[job_id])
    assert set(placement.allocations) <= {job_id}


@settings(deadline=None)
@given(st.sampled_from(REGULAR), rounds, st.integers(0, 19), st.sampled_from(POWERS))
def test_no_one_moves_where_a_compact_place_is_free(cluster: str, history: list[Round], job: int, share: int) -> None:
    small, _ = replay(cluster, history, POWERS)
    job_id = list(small.world.jobs)[job]
    if share - small.world.jobs[job_id].share > small.free():
        return
    spare = small.arrange({job_id: share}, optional=[job_id])
    if not spare.skipped:
        assert set(small.arrange({job_id: share}).allocations) <= {job_id}


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(REGULAR), rounds, st.lists(st.sampled_from([0.0, 5.0, 10.0, 100.0]), min_size=20, max_size=20))
def test_whoever_moves_has_slack_unless_it_is_reported(
    cluster: str, history: list[Round], slacks_s: list[float]
) -> None:
    small, _ = replay(cluster, history, POWERS)
    finish_s = 1e12
    promises = {
        job_id: promise_until(finish_s + slack_s, finish_s, slack_s)
        for job_id, slack_s in zip(small.world.jobs, slacks_s, strict=True)
    }
    small.world.apply(Decision(promises=promises), small.now_s)
    small.now_s += 60.0
    new = small.arrive(100)
    largest = max((share for share in POWERS if share <= small.free()), default=0)
    placement = small.place({new: largest})
    moved_without = [job_id for job_id in placement.moved if promises[job_id].deadline_s - finish_s < 10.0]
    assert bool(moved_without) == bool(placement.forced) == bool(placement.late_s)
