"""Speed on several device types at once, from the curves of each alone."""

import pytest

from springtide.core.curves import Curve
from springtide.errors import ProfileError
from springtide.throughput.blends import CurveBlend, mix_curves

FAST = Curve((1, 2, 4, 8), (4.0, 7.2, 12.0, 16.0))
SLOW = FAST.scaled(0.25)


def test_each_device_counts_by_its_speed_at_the_efficiency_of_the_whole() -> None:
    blend = CurveBlend({"a100": FAST, "t4": SLOW})
    # four devices are 75 % efficient, eight are 50 %
    assert blend.rate({"a100": 2, "t4": 2}) == pytest.approx(0.75 * (2 * 4.0 + 2 * 1.0))
    assert blend.rate({"a100": 4, "t4": 4}) == pytest.approx(0.5 * (4 * 4.0 + 4 * 1.0))
    assert blend.rate({"a100": 8, "t4": 1}) == 0.0


def test_efficiency_between_measured_shares_and_of_the_worse_type() -> None:
    blend = CurveBlend({"a100": FAST, "t4": Curve((1, 4, 8), (1.0, 4.0, 4.0))})
    low, high = blend.rate({"a100": 3, "t4": 1}) / 13.0, blend.rate({"a100": 4, "t4": 4}) / 20.0
    assert low == pytest.approx(0.75) and high == pytest.approx(0.5)
    assert 0.5 < blend.rate({"a100": 5, "t4": 1}) / 21.0 < 0.75


def test_mixing_costs_the_slowdown_of_its_kernels() -> None:
    assert CurveBlend({"a": FAST, "b": SLOW}, 2.0).rate({"a": 1, "b": 1}) == pytest.approx(
        CurveBlend({"a": FAST, "b": SLOW}).rate({"a": 1, "b": 1}) / 2.0
    )
    with pytest.raises(ProfileError, match=r"slowdown 0.5"):
        CurveBlend({"a": FAST, "b": SLOW}, 0.5)


def test_curves_are_capped_by_type_and_mixed_by_level() -> None:
    curves = {"a100": FAST, "t4": SLOW}
    d2 = mix_curves(curves, {"a100": 4, "t4": 2}, slowdown=1.0)
    assert d2.curves["a100"].shares == (1, 2, 4) and d2.curves["t4"].shares == (1, 2)
    assert d2.movable and d2.most == 8 and d2.rate({"a100": 1, "t4": 1}) > d2.rate({"a100": 1})
    d1 = mix_curves(curves, {"a100": 4, "t4": 2}, preferred="t4")
    assert not d1.movable and d1.preferred == "t4" and d1.rate({"a100": 1, "t4": 1}) == 0.0


def test_a_type_that_cannot_hold_the_smallest_share_is_left_out() -> None:
    large = Curve((4, 8), (1.0, 2.0))
    assert mix_curves({"a": large, "b": FAST}, {"a": 2, "b": 8}, 1.0).types == ("b",)
    with pytest.raises(ProfileError, match="devices at least"):
        mix_curves({"a": large}, {"a": 2})
