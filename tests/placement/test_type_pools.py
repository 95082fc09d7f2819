"""Placement by device type: every part within the nodes of its type."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.core.curves import Curve
from springtide.core.decisions import Decision
from springtide.core.devices import Devices, parse_cluster
from springtide.core.jobs import Job, JobId
from springtide.core.typed_curves import Mix, TypedCurves
from springtide.core.world import World
from springtide.errors import PolicyError
from springtide.placement.type_pools import place_mixes, pools_of

CLUSTER = parse_cluster("2x4:a100,1x8:t4,1x4:a100")
ANY = Curve(tuple(range(1, 13)), tuple(map(float, range(1, 13))))


class Total:
    """A blend for tests: speed is the number of devices."""

    most = 12

    def rate(self, mix: Mix) -> float:
        return float(sum(mix.values()))


TYPED = TypedCurves({"a100": ANY, "t4": ANY}, Total(), movable=True)


def fill(world: World, *mixes: Mix) -> dict[JobId, Devices]:
    """Give every job, in order, the mix at its place."""
    wanted = {
        job_id: mix for job_id, mix in zip(world.jobs, mixes, strict=False) if mix != (world.jobs[job_id].mix or {})
    }
    decision = Decision(mixes=wanted)
    allocations = place_mixes(0.0, world.snapshot(), decision)
    world.apply(Decision(allocations=allocations), 0.0)
    return allocations


def build_world(jobs: int) -> World:
    world = World(CLUSTER)
    for index in range(jobs):
        world.arrive(Job(JobId(f"j{index}"), index, 0.0, 100.0, ANY, typed=TYPED), 0.0)
    return world


def test_pools_number_their_own_nodes() -> None:
    a100, t4 = pools_of(CLUSTER)
    assert (a100.nodes, t4.nodes) == ((0, 1, 3), (2,))
    assert a100.cluster.describe() == "2x4:a100,1x4:a100"


def test_a_mix_is_placed_in_both_pools_and_its_other_part_stays() -> None:
    world = build_world(1)
    first = fill(world, {"a100": 4, "t4": 2})[JobId("j0")]
    assert CLUSTER.count_types(first) == {"a100": 4, "t4": 2}
    second = fill(world, {"a100": 4, "t4": 4})[JobId("j0")]
    assert [piece for piece in second if piece.node != 2] == [piece for piece in first if piece.node != 2]
    assert fill(world, {})[JobId("j0")] == ()


def test_more_than_a_pool_holds_and_unknown_types_are_named() -> None:
    with pytest.raises(PolicyError, match="job j0 cannot have 9 devices"):
        fill(build_world(1), {"t4": 9})
    with pytest.raises(PolicyError, match="type h100: cluster 2x4:a100"):
        fill(build_world(1), {"h100": 1})


@settings(max_examples=60, deadline=None)
@given(rounds=st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=4, max_size=4), max_size=6))
def test_every_job_gets_its_mix_whenever_the_pools_hold_it(rounds: list[list[tuple[int, int]]]) -> None:
    world = build_world(4)
    for wanted in rounds:
        free = [12, 8]
        mixes = []
        for counts in wanted:
            given_now = [min(count, left) for count, left in zip(counts, free, strict=True)]
            free = [left - count for left, count in zip(free, given_now, strict=True)]
            mixes.append(
                {device_type: count for device_type, count in zip(("a100", "t4"), given_now, strict=True) if count}
            )
        fill(world, *mixes)
        assert [view.mix or {} for view in world.jobs.values()] == mixes
