"""Finding free places: nodes of racks, parts to keep, the last resort."""

import pytest
from tests.placement.small_clusters import build_cluster

from springtide.core.devices import NodeSlice, count_devices
from springtide.placement.best_fit import choose_nodes, extend, find_fit, gather, keep_part, topology_of

RACKS_OF_TWO = topology_of(build_cluster("6x4:a100", nodes_per_rack=2))


@pytest.mark.parametrize(
    ("free", "count", "chosen"),
    [
        ([0xF] * 6, 1, [0]),
        ([0xF, 0, 0xF, 0xF, 0xF, 0xF], 1, [0]),
        ([0xF, 0, 0xF, 0xF, 0xF, 0xF], 2, [2, 3]),
        ([0xF, 0, 0xF, 0xF, 0xF, 0xF], 3, [2, 3, 0]),
        ([0xF, 0, 0, 0, 0, 0xF], 2, [0, 5]),
        ([0xF, 0, 0, 0, 0, 0x7], 2, None),
    ],
)
def test_nodes_of_few_racks(free: list[int], count: int, chosen: list[int] | None) -> None:
    assert choose_nodes(RACKS_OF_TWO, free, 4, count) == chosen


def test_nodes_near_come_first() -> None:
    assert choose_nodes(RACKS_OF_TWO, [0xF] * 6, 4, 1, near={5}) == [5]
    assert choose_nodes(RACKS_OF_TWO, [0xF] * 6, 4, 3, near={5}) == [5, 4, 0]


def test_half_of_a_large_node_is_no_whole_small_node() -> None:
    mixed = topology_of(build_cluster("1x8:a100,1x4:t4"))
    assert choose_nodes(mixed, [0x0F, 0xF], 4, 1) == [1]


def test_what_whole_nodes_leave_over_stays_in_their_rack() -> None:
    assert find_fit(RACKS_OF_TWO, [0x3, 0, 0xF, 0xF, 0xF, 0xF], 6) == (NodeSlice(2, 0xF), NodeSlice(3, 0x3))


def test_nothing_is_found_where_only_pieces_are_free() -> None:
    assert find_fit(RACKS_OF_TWO, [0x6] * 6, 2) is None
    assert find_fit(RACKS_OF_TWO, [0x7] * 6, 8) is None


def test_extension_fills_the_block_or_gives_up() -> None:
    own = (NodeSlice(1, 0x1),)
    assert extend(RACKS_OF_TWO, [0, 0x3, 0, 0, 0, 0], own, 2) == (NodeSlice(1, 0x3),)
    assert extend(RACKS_OF_TWO, [0xF, 0x5, 0, 0, 0, 0], own, 2) is None


def test_an_odd_extension_takes_what_its_node_has() -> None:
    assert extend(RACKS_OF_TWO, [0, 0xD, 0, 0, 0, 0], (NodeSlice(1, 0x1),), 3) == (NodeSlice(1, 0xD),)


def test_whole_nodes_to_keep_free_the_larger_rack() -> None:
    topology = topology_of(build_cluster("6x4:a100", nodes_per_rack=3))
    own = tuple(NodeSlice(node, 0xF) for node in (0, 1, 2, 3))
    assert keep_part(topology, [0] * 6, own, 4) == (NodeSlice(3, 0xF),)


def test_scattered_devices_hold_no_part_to_keep() -> None:
    assert keep_part(RACKS_OF_TWO, [0] * 6, (NodeSlice(0, 0x6), NodeSlice(1, 0x1)), 2) is None


def test_the_last_resort_uses_few_nodes() -> None:
    devices = gather([0x1, 0x7, 0x3, 0x0], 5)
    assert count_devices(devices) == 5
    assert [piece.node for piece in devices] == [1, 2]
