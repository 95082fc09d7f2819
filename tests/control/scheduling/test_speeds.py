import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.control.scheduling import speeds
from springtide.control.storage.records import SpeedRecord
from springtide.core.job_file import check_job


def measured(points: dict[int, tuple[int, float]], whole_epoch: bool = False) -> SpeedRecord:
    return SpeedRecord("k", points, 2.0, 0.1, 100, 10, 8, "cpu", whole_epoch)


def test_known_means_the_same_code_command_and_place_but_not_the_same_steps() -> None:
    def key(archive: str = "a", device: str = "cpu", torch: str = "2", **fields: object) -> str:
        job = check_job({"run": "python train.py", **fields}, "test")
        return speeds.name_key(speeds.make_key(job, archive, torch), device)

    assert key() == key(steps=5) == key(deadline="6h") == key(name="x") == key(run=["python", "train.py"])
    others = [
        key(archive="b"),
        key(device="a100"),
        key(torch="3"),
        key(run="python train.py --batch 2"),
        key(env={"A": "1"}),
        key(logical_workers=4),
    ]
    assert len({key(), *others}) == len(others) + 1


def test_plans_count_on_less_than_was_seen_and_on_less_still_before_a_whole_epoch() -> None:
    early = measured({1: (30, 10.0), 2: (30, 18.0)})
    late = measured({1: (30, 10.0), 2: (30, 18.0)}, whole_epoch=True)
    expected = speeds.expect_curve(late, (1, 2))
    assert expected.rates == (10.0, 18.0)
    for share in (1, 2):
        assert speeds.plan_curve(late, (1, 2)).rate(share) < expected.rate(share)
        assert speeds.plan_curve(early, (1, 2)).rate(share) <= speeds.plan_curve(late, (1, 2)).rate(share) / 1.249


def test_shares_beyond_the_measured_are_less_sure() -> None:
    curve = speeds.expect_curve(measured({1: (30, 10.0)}), (1, 2, 4))
    ratios = [rate / low for rate, low in zip(curve.rates, curve.low, strict=True)]
    assert ratios[0] < ratios[1] < ratios[2]


@settings(deadline=None, max_examples=25)
@given(
    st.dictionaries(st.integers(1, 8), st.tuples(st.integers(1, 100), st.floats(0.01, 100)), min_size=1, max_size=3),
    st.sets(st.integers(1, 8), min_size=1),
)
def test_any_points_give_a_curve_that_plans_can_use(points: dict[int, tuple[int, float]], shares: set[int]) -> None:
    curve = speeds.plan_curve(measured(points), tuple(sorted(shares)))
    assert all(rate > 0 for rate in curve.rates)


def test_points_follow_what_is_observed() -> None:
    speed = speeds.learn_point(SpeedRecord("k"), 1, 100, 10.0)
    assert speed.points == {1: (100, 10.0)}
    for _ in range(50):
        speed = speeds.learn_point(speed, 1, 100, 20.0)
    assert abs(speed.points[1][1] - 5.0) < 0.01
    assert speeds.learn_point(speed, 1, 0, 1.0) is speed


def test_costs_keep_the_longest_seen_and_forget_it_slowly() -> None:
    speed = speeds.learn_costs(SpeedRecord("k"), startup_s=4.0, pause_s=1.0)
    speed = speeds.learn_costs(speed, startup_s=2.0, pause_s=0.1)
    assert (speed.startup_s, speed.pause_s) == (3.0, 0.75)


FIT = """
import sys
from springtide.control.scheduling.speeds import SpeedRecord, learn_point, plan_curve
assert plan_curve(learn_point(SpeedRecord("k"), 1, 100, 10.0), (1, 2, 4)).rates[2] > 0
assert not any(name.startswith("scipy") for name in sys.modules)
"""


def test_a_fit_does_without_what_takes_a_second_to_import() -> None:
    subprocess.run([sys.executable, "-c", FIT], check=True)
