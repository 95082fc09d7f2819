"""Bytes and times of a log as lines: where blocks are cut, what a pattern finds, and when a line came."""

import random

import pytest

from springtide.client.log_streams import LogTimes, compile_pattern, cut_blocks, find_lines, split_lines
from springtide.errors import InputError


def test_a_byte_came_when_the_stamp_before_it_says() -> None:
    times = LogTimes([10, 20, 40], [1.0, 2.0, 5.0])
    assert [times.find_s(place) for place in (9, 10, 19, 20, 1000)] == [None, 1.0, 1.0, 2.0, 5.0]
    assert [times.find_place(since_s, 10, 50) for since_s in (0.0, 1.5, 2.0, 5.0)] == [10, 20, 40, 50]
    assert LogTimes().find_place(3.0, 7, 50) == 7, "nobody knows, so all of it"


def test_blocks_are_whole_lines_and_lose_nothing() -> None:
    rng = random.Random(0)
    text = b"".join(b"x" * rng.randrange(30) + b"\n" for _ in range(500)) + b"no end"
    chunks = [text[start : start + 17] for start in range(0, len(text), 17)]
    blocks = list(cut_blocks(chunks, 100, 64))
    assert b"".join(block for _, block in blocks) == text
    assert all(block.endswith(b"\n") for _, block in blocks[:-1])
    place = 100
    for begin, block in blocks:
        assert begin == place
        place += len(block)


@pytest.mark.parametrize("pattern", ["loss", r"^step \d+$", r"[^a]b", "e$", "", r"\s", "ä"])
def test_a_search_in_blocks_finds_what_a_search_in_lines_finds(pattern: str) -> None:
    text = "step 1\nloss=2\n\nb\nab cb\nthe\nä b\nstep 2".encode()
    lines = list(split_lines(text, 5))
    expected = [(place, line) for place, line in lines if compile_pattern(pattern).search(line.decode())]
    assert list(find_lines(text, 5, compile_pattern(pattern))) == expected


def test_a_broken_pattern_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"--grep '\(' is not a regular expression"):
        compile_pattern("(")
