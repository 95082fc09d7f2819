"""Making room: the order of costs, and that few moves are made."""

from itertools import combinations

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.placement.small_clusters import SmallCluster, build_cluster

from springtide.core.jobs import JobId
from springtide.placement.best_fit import find_fit, topology_of
from springtide.placement.migration import MoveCost


def test_costs_are_compared_worst_first() -> None:
    late, unreserved, many, strained = (
        MoveCost(late_s=1.0),
        MoveCost(unreserved=1),
        MoveCost(moves=9),
        MoveCost(moves=1, strain=0.9),
    )
    assert sorted([late, unreserved, many, strained]) == [strained, many, unreserved, late]
    assert [cost.harms for cost in (late, unreserved, many, strained)] == [True, True, False, False]


def test_costs_add_up() -> None:
    assert MoveCost(1.0, 1, 2, 0.5).plus(MoveCost(2.0, 0, 1, 0.25)) == MoveCost(3.0, 1, 3, 0.75)


def count_fewest_moves(small: SmallCluster, share: int) -> int:
    """How few jobs must move so that a share fits, by trying every set of them."""
    held = {job_id: view for job_id, view in small.world.jobs.items() if view.share}
    for count in range(len(held) + 1):
        if any(fits_without(small, moved, share) for moved in combinations(held, count)):
            return count
    raise AssertionError("moving everyone always makes room")


def fits_without(small: SmallCluster, moved: tuple[JobId, ...], share: int) -> bool:
    """Whether a share and these jobs fit around the others; largest first is exact for blocks."""
    free = list(small.world.free_masks)
    for job_id in moved:
        for node, mask in small.devices(job_id):
            free[node] |= mask
    for wanted in sorted([share, *(small.world.jobs[job_id].share for job_id in moved)], reverse=True):
        fit = find_fit(topology_of(small.cluster), free, wanted)
        if fit is None:
            return False
        for node, mask in fit:
            free[node] &= ~mask
    return True


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["3x4:a100", "2x8:a100", "5x2:a100"]),
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=4, max_size=14),
    st.integers(1, 3),
)
def test_hardly_more_jobs_move_than_must(cluster: str, jobs: list[tuple[int, bool]], power: int) -> None:
    small = SmallCluster(build_cluster(cluster))
    ending = []
    for index, (size, ends) in enumerate(jobs):
        if 1 << size <= small.free():
            job_id = small.arrive(index)
            small.place({job_id: 1 << size})
            if ends:
                ending.append(job_id)
    for job_id in ending:
        small.finish(job_id)
    if 1 << power > small.free():
        return
    fewest = count_fewest_moves(small, 1 << power)
    moves = len(small.place({small.arrive(100): 1 << power}).moved)
    event(f"{moves - fewest} more than the fewest")
    assert fewest <= moves <= fewest + 1
