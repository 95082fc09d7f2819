"""Buddy blocks of one node."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.placement.blocks import (
    NO_FIT,
    find_block,
    list_blocks,
    list_parts,
    pick,
    ranks_for,
    round_up,
    split_blocks,
)

masks = st.integers(1, (1 << 16) - 1)


def test_a_full_node_is_one_block() -> None:
    assert split_blocks(0xFF) == (0xFF,)


def test_neighbours_that_are_no_buddies_stay_apart() -> None:
    assert split_blocks(0b0110) == (0b0010, 0b0100)


def test_a_node_of_six_is_a_block_of_four_and_one_of_two() -> None:
    assert split_blocks(0b111111) == (0b001111, 0b110000)


@settings(deadline=None)
@given(masks)
def test_blocks_are_aligned_disjoint_and_make_up_the_mask(mask: int) -> None:
    union = 0
    for block in split_blocks(mask):
        size, start = block.bit_count(), (block & -block).bit_length() - 1
        assert size == round_up(size)
        assert start % size == 0
        assert block == ((1 << size) - 1) << start
        assert not union & block
        union |= block
    assert union == mask


@settings(deadline=None)
@given(masks)
def test_no_two_blocks_are_free_buddies(mask: int) -> None:
    blocks = set(split_blocks(mask))
    for block in blocks:
        size, start = block.bit_count(), (block & -block).bit_length() - 1
        buddy = ((1 << size) - 1) << (start ^ size)
        assert buddy not in blocks


@settings(deadline=None)
@given(masks, st.data())
def test_a_pick_holds_the_share_within_the_mask(mask: int, data: st.DataObject) -> None:
    share = data.draw(st.integers(1, mask.bit_count()))
    picked = pick(mask, share)
    assert picked.bit_count() == share
    assert picked & mask == picked


@pytest.mark.parametrize(
    ("mask", "share", "picked"),
    [
        (0b11110001, 1, 0b00000001),  # the single device, not a piece of the four
        (0b11110011, 2, 0b00000011),
        (0b11110000, 3, 0b01110000),
        (0b11111100, 6, 0b11111100),  # a four and a two
    ],
)
def test_a_pick_breaks_the_smallest_block(mask: int, share: int, picked: int) -> None:
    assert pick(mask, share) == picked


def test_ranks_prefer_the_tighter_block_then_the_fuller_node() -> None:
    ranks = ranks_for(2)
    assert ranks[0b00000011] < ranks[0b00110011] < ranks[0b00001111] < ranks[0b11111111]
    assert ranks[0b00000110] == NO_FIT  # two devices, but not a block


def test_an_odd_share_may_lie_loosely_in_a_node() -> None:
    ranks = ranks_for(3)
    assert ranks[0b00001111] < ranks[0b00000111] < NO_FIT
    assert ranks[0b00000011] == NO_FIT


def test_places_on_an_empty_node() -> None:
    assert list_blocks(8, 4) == (0x0F, 0xF0)
    assert list_blocks(6, 2) == (0b11, 0b1100, 0b110000)
    assert list_blocks(6, 5) == (0b111111,)
    assert list_blocks(4, 8) == ()


def test_the_block_around_devices() -> None:
    assert find_block(0b00100000, 4) == 0xF0
    assert find_block(0b00011000, 4) == 0


def test_parts_to_keep() -> None:
    assert list_parts(0xF0, 2) == (0x30, 0xC0)
    assert list_parts(0b0110, 2) == ()
    assert list_parts(0b0111, 3) == (0b0111,)
