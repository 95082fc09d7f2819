"""Overheads by name, worked by hand from ElasticFlow's formula."""

from math import log2

import pytest

from springtide.core.jobs import FREE
from springtide.errors import InputError
from springtide.throughput.overheads import parse_overhead


@pytest.mark.parametrize(
    ("devices", "share", "pause_s"), [(255, 1, 4.0), (255, 2, 6.0), (255, 8, 10.0), (256, 1, 9.0), (1024, 64, 21.0)]
)
def test_elasticflow_pause(devices: int, share: int, pause_s: float) -> None:
    assert parse_overhead("elasticflow", devices).pause_s(share) == pytest.approx(pause_s)


def test_log2_is_real_valued() -> None:
    assert parse_overhead("elasticflow", 8).pause_s(3) == pytest.approx(2 + 2 * (log2(3) + 1))


def test_none_and_constant() -> None:
    assert parse_overhead("none", 8) is FREE
    overhead = parse_overhead("constant:30", 8)
    assert overhead.pause_s(1) == overhead.pause_s(64, starting=True) == 30.0


@pytest.mark.parametrize(
    "text", ["", "fast", "constant", "constant:", "constant:x", "constant:-1", "constant:nan", "constant:inf"]
)
def test_bad_names_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="overhead"):
        parse_overhead(text, 8)
