"""Devices that nobody moves for: own ones kept, the rest taken in few pieces, exactly the mix that was asked for."""

from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.core.devices import Cluster, Devices, NodeSlice, count_devices, parse_cluster
from springtide.core.jobs import JobId
from springtide.core.typed_curves import Mix
from springtide.placement.scattered import hold_loosely

CLUSTER = parse_cluster("2x4:fast,1x4:slow,1x2:fast")
A, B = JobId("a"), JobId("b")


def hold(own: dict[JobId, Devices], mixes: dict[JobId, Mix], cluster: Cluster = CLUSTER) -> dict[JobId, Devices]:
    """The placement if nobody else is there."""
    return hold_loosely(cluster, cluster.full_masks, own, mixes)


def test_a_job_that_keeps_its_mix_keeps_its_devices() -> None:
    own = (NodeSlice(0, 0b0101), NodeSlice(2, 0b1000))
    assert hold({A: own, B: ()}, {A: {"fast": 2, "slow": 1}, B: {"fast": 4}})[A] == own


def test_a_job_that_shrinks_keeps_the_fuller_node() -> None:
    own = (NodeSlice(0, 0b0001), NodeSlice(1, 0b0111))
    assert hold({A: own}, {A: {"fast": 3}})[A] == (NodeSlice(1, 0b0111),)


def test_whole_nodes_are_taken_first_and_the_rest_where_it_is_tightest() -> None:
    assert hold({A: ()}, {A: {"fast": 6}})[A] == (NodeSlice(0, 0b1111), NodeSlice(3, 0b11))


def test_devices_that_are_not_free_are_left_even_if_they_were_its_own() -> None:
    free = (0b1111, 0b0000, 0b1111, 0b11)  # node 1 is wanted back
    held = hold_loosely(CLUSTER, free, {A: (NodeSlice(1, 0b0011),)}, {A: {"fast": 2}})
    assert all(piece.node != 1 for piece in held[A]) and count_devices(held[A]) == 2


def test_two_jobs_may_swap_what_they_hold() -> None:
    own = {A: (NodeSlice(0, 0b1111), NodeSlice(1, 0b1111)), B: (NodeSlice(3, 0b11),)}
    held = hold(own, {A: {"fast": 2}, B: {"fast": 8}})
    assert (count_devices(held[A]), count_devices(held[B])) == (2, 8)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_everyone_gets_its_mix_of_what_is_free_and_keeps_of_its_own_what_it_may(data: st.DataObject) -> None:
    free = tuple(data.draw(st.integers(0, full)) for full in CLUSTER.full_masks)
    owner = [data.draw(st.lists(st.sampled_from("ab-"), min_size=4, max_size=4)) for _ in free]
    own = {
        job_id: tuple(
            NodeSlice(node, mask)
            for node, seats in enumerate(owner)
            if (mask := sum(1 << at for at, name in enumerate(seats) if name == job_id) & CLUSTER.full_masks[node])
        )
        for job_id in (A, B)
    }
    left = {
        device_type: sum(m.bit_count() for m, k in zip(free, CLUSTER.node_types, strict=True) if k == device_type)
        for device_type in CLUSTER.totals
    }
    mixes: dict[JobId, Mix] = {}
    for job_id in (A, B):
        counts = {device_type: data.draw(st.integers(0, count)) for device_type, count in left.items()}
        left = {device_type: count - counts[device_type] for device_type, count in left.items()}
        mixes[job_id] = {device_type: count for device_type, count in counts.items() if count}
    held = hold_loosely(CLUSTER, free, own, mixes)
    taken = [0] * len(free)
    for job_id, devices in held.items():
        assert CLUSTER.count_types(devices) == mixes[job_id]
        for node, mask in devices:
            assert mask & ~free[node] == 0 and mask & taken[node] == 0
            taken[node] |= mask
        for device_type, count in mixes[job_id].items():
            mine = sum((m & free[n]).bit_count() for n, m in own[job_id] if CLUSTER.node_types[n] == device_type)
            kept = sum(
                (m & dict(own[job_id]).get(n, 0)).bit_count()
                for n, m in devices
                if CLUSTER.node_types[n] == device_type
            )
            assert kept >= min(mine, count)
