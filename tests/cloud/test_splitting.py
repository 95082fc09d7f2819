"""Mixed types by their limits: one type alone, two equal ones, and shares that finish together."""

import numpy as np
import pytest
from tests.cloud.made_up_cloud import make_speeds

from springtide.cloud.plans import Work
from springtide.cloud.splitting import Pair, cut_alone, cut_mix
from springtide.cloud.step_times import Speed

COUNTS = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])


@pytest.fixture(scope="module")
def speeds() -> dict[str, Speed]:
    return make_speeds("slow", "fast")


@pytest.mark.parametrize("workers", [None, 32])
def test_two_equal_types_are_one_type(speeds: dict[str, Speed], workers: int | None) -> None:
    work = Work("net", 1000, 256, workers, "D2")
    pair = Pair((speeds["slow"], speeds["slow"]), (4, 4))
    mixed = cut_mix(pair, *COUNTS, work)
    alone = cut_alone(speeds["slow"], COUNTS[0] + COUNTS[1], 4, work)
    assert mixed.log_step == pytest.approx(alone.log_step)
    assert mixed.spread == pytest.approx(alone.spread)


def test_the_faster_device_takes_more(speeds: dict[str, Speed]) -> None:
    cut = cut_mix(Pair((speeds["slow"], speeds["fast"]), (4, 4)), *COUNTS, Work("net", 1000, 512, None, "none"))
    assert (cut.second_batch > cut.first_batch).all()
    taken = cut.first_batch * COUNTS[0] * 4 + cut.second_batch * COUNTS[1] * 4
    assert (taken >= 512).all()


def test_whole_logical_workers_cover_the_job(speeds: dict[str, Speed]) -> None:
    cut = cut_mix(Pair((speeds["slow"], speeds["fast"]), (4, 4)), *COUNTS, Work("net", 1000, 256, 64, "D2"))
    first, second = cut.first_batch / 4, cut.second_batch / 4  # logical workers of 4 samples
    assert (first == np.round(first)).all()
    assert (first * COUNTS[0] * 4 + second * COUNTS[1] * 4 >= 64).all()


def test_more_devices_than_samples_cannot_train(speeds: dict[str, Speed]) -> None:
    cut = cut_alone(speeds["slow"], np.array([1.0, 4.0]), 4, Work("net", 1000, 8))
    assert np.isfinite(cut.log_step).tolist() == [True, False]
