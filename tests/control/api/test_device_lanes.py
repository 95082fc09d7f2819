"""Who held which device, as a chart needs it."""

import pytest

from springtide.control.api.device_lanes import SEVERAL, Held, average_held, join_short, sum_held
from springtide.control.api.histories import Track


def span(start_s: float, end_s: float, name: str = "a") -> Held:
    return (start_s, end_s, name, name)


def test_short_spans_beside_each_other_are_one_and_lone_ones_are_not_seen() -> None:
    spans = [span(0, 10), span(10, 11, "b"), span(11, 12, "c"), span(12.5, 14, "d"), span(30, 31, "e"), span(40, 50)]
    assert list(join_short(spans, 3.0)) == [span(0, 10), (10, 14, None, SEVERAL), span(40, 50)]
    assert list(join_short(spans, 0.0)) == spans


TRACKS = [Track([(0.0, ("g0", "g1")), (6.0, ("g0",)), (9.0, ())]), Track([(4.0, ("g2",))])]


def test_what_was_held_is_averaged_over_cells() -> None:
    assert average_held(TRACKS, 0.0, 12.0, 4.0) == [(0.0, 2.0), (4.0, 2.5), (8.0, 1.2)]


@pytest.mark.parametrize("cell_s", [5e-324, 0.7, 1.0, 5.0, 100.0])
def test_no_device_second_is_lost_in_cells(cell_s: float) -> None:
    steps = average_held(TRACKS, 2.0, 12.0, cell_s)
    ends = [at_s for at_s, _ in steps[1:]] + [12.0]
    area = sum((end_s - at_s) * held for (at_s, held), end_s in zip(steps, ends, strict=True))
    assert area == pytest.approx(sum_held(TRACKS, 2.0, 12.0), abs=0.05 * 10)  # a tenth of a device is the last digit
