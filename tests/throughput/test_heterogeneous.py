"""EasyScale's model of a job on mixed devices: its equations, the best mapping, memory, and what is learned."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import inf, isclose

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from springtide.core.curves import Curve
from springtide.errors import ProfileError
from springtide.throughput.heterogeneous import Deal, DeviceSpeed, Level, LogicalWorkers, Sync, fit_workers, saved_s

# spec example: C = 3.1 / 2.4 / 1 mini-batches per second
TABLE = {"v100": DeviceSpeed(1 / 3.1), "p100": DeviceSpeed(1 / 2.4), "t4": DeviceSpeed(1.0)}


def run_step(spread: Mapping[str, tuple[int, ...]], speeds: Mapping[str, DeviceSpeed]) -> float:
    """Seconds of one step, simulated: every executor of every device runs its workers one after the other."""
    ends = [0.0]
    for device_type, devices in spread.items():
        speed = speeds[device_type]
        each_s = speed.seconds / (speed.interference if speed.executors > 1 else 1.0)
        for workers in devices:
            executors = [0.0] * speed.executors
            for _ in range(workers):
                first = executors.index(min(executors))
                executors[first] += each_s
            ends.append(max(executors))
    return max(ends)


def try_everything(model: LogicalWorkers, mix: Mapping[str, int]) -> float:
    """The shortest step over all numbers of workers on each device."""
    devices = [device_type for device_type, count in mix.items() for _ in range(count)]
    limits = [min(model.count, model.speeds[device_type].most_workers) for device_type in devices]
    best = inf
    for counts in product(*(range(limit + 1) for limit in limits)):
        if sum(counts) == model.count:
            best = min(
                best, max(model.speeds[device_type].busy_s(n) for device_type, n in zip(devices, counts, strict=True))
            )
    return best


speeds = st.builds(
    DeviceSpeed,
    st.floats(0.05, 3.0),
    st.one_of(st.just(1 << 30), st.integers(1, 4)),
    st.integers(1, 3),
    st.floats(0.4, 1.0),
)
models = st.builds(LogicalWorkers, st.integers(1, 6), st.fixed_dictionaries({"a": speeds, "b": speeds, "c": speeds}))
mixes = st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.integers(0, 2), "c": st.integers(0, 1)})


@settings(max_examples=150, deadline=None)
@given(model=models, mix=mixes)
def test_the_mapping_is_as_good_as_trying_everything(model: LogicalWorkers, mix: dict[str, int]) -> None:
    assume(any(mix.values()))
    best = try_everything(model, mix)
    deal = model.deal(mix)
    assert (deal is None) == (best == inf)
    if deal is not None:
        assert isclose(find_overload(deal), best, rel_tol=1e-9)


def find_overload(deal: Deal) -> float:
    """EasyScale's factor f = max over used types of A_i / C_i: the seconds of a step without communication."""
    return max(deal.speeds[device_type].busy_s(workers) for device_type, workers in deal.workers.items())


def find_perf(deal: Deal) -> float:
    """EasyScale's mini-batches per second: sum_i N_i C_i - waste, which is maxP / f."""
    return deal.count / find_overload(deal)


def find_waste(deal: Deal) -> float:
    """Mini-batches per second that are paid for but not run: sum_i N_i (C_i - A_i / f) + (capacity - maxP) / f."""
    f = find_overload(deal)
    idle = sum(n * (deal.speeds[name].capacity - deal.workers[name] / f) for name, n in deal.mix.items())
    return idle + (deal.capacity - deal.count) / f


@settings(max_examples=150, deadline=None)
@given(model=models, mix=mixes)
def test_a_mapping_covers_all_workers_within_memory_and_perf_is_that_of_a_step(
    model: LogicalWorkers, mix: dict[str, int]
) -> None:
    deal = model.deal(mix)
    if deal is None:
        return
    spread = deal.spread()
    assert sum(map(sum, spread.values())) == model.count <= deal.capacity
    for device_type, devices in spread.items():
        assert len(devices) == mix[device_type]
        assert max(devices) <= min(deal.workers[device_type], model.speeds[device_type].most_workers)
    simulated_s = run_step(spread, model.speeds)
    assert isclose(find_perf(deal), model.count / simulated_s, rel_tol=1e-9)
    offered = sum(n * model.speeds[device_type].capacity for device_type, n in deal.mix.items())
    assert isclose(find_perf(deal), offered - find_waste(deal), rel_tol=1e-6, abs_tol=1e-9)
    assert find_waste(deal) <= offered


def test_the_worked_example_of_the_published_bug() -> None:
    deal = LogicalWorkers(16, TABLE).deal({"v100": 2, "p100": 1})
    assert deal is not None
    assert deal.workers == {"v100": 6, "p100": 4}
    assert find_perf(deal) == pytest.approx(8.27, abs=0.01)


def test_devices_of_one_type_waste_what_does_not_divide() -> None:
    deal = LogicalWorkers(16, TABLE).deal({"v100": 3})
    assert deal is not None
    assert find_perf(deal) == pytest.approx(16 / 6 * 3.1)
    assert find_waste(deal) == pytest.approx((3 - 16 / 6) * 3.1)


def test_faster_devices_run_more_workers() -> None:
    """The mapping 3 + 1 that `tests/training/test_mappings` trains with, by bits."""
    deal = LogicalWorkers(4, {"fast": DeviceSpeed(1.0), "slow": DeviceSpeed(3.0)}).deal({"fast": 1, "slow": 1})
    assert deal is not None and deal.spread() == {"fast": (3,), "slow": (1,)}


def test_a_type_too_slow_to_help_runs_nothing() -> None:
    model = LogicalWorkers(2, {"fast": DeviceSpeed(1.0), "slow": DeviceSpeed(10.0)})
    deal = model.deal({"fast": 2, "slow": 1})
    assert deal is not None
    assert (deal.workers, find_overload(deal)) == ({"fast": 1, "slow": 0}, 1.0)


def test_memory_that_cannot_hold_the_job() -> None:
    model = LogicalWorkers(8, {"a": DeviceSpeed(1.0, most_workers=3)})
    assert model.deal({"a": 2}) is None and model.rate({"a": 2}) == 0.0
    curve = model.curve("a", 8)
    assert curve is not None and curve.shares == (3, 4, 5, 6, 7, 8)
    assert model.curve("a", 2) is None
    with pytest.raises(ProfileError, match="8 logical workers fit on no device type"):
        model.type_curves({"a": 2}, Level())


def test_several_executors_share_a_device() -> None:
    alone, shared = DeviceSpeed(1.0), DeviceSpeed(1.0, executors=2, interference=0.75)
    assert shared.capacity == pytest.approx(1.5 * alone.capacity)
    assert LogicalWorkers(8, {"a": shared}).step_s({"a": 1}) == pytest.approx(4 / 0.75)


def test_communication_can_make_more_devices_slower() -> None:
    model = LogicalWorkers(8, {"a": DeviceSpeed(0.1)}, Sync(gradient_s=0.5))
    assert model.step_s({"a": 1}) == pytest.approx(0.8)
    assert model.step_s({"a": 8}) == pytest.approx(0.1 + 2 * 7 / 8 * 0.5)
    curve = model.curve("a", 8)
    assert curve is not None and curve.peak == 1


def test_a_level_says_what_may_be_mixed() -> None:
    model = LogicalWorkers(16, TABLE)
    totals = {"v100": 8, "t4": 4}
    both = model.type_curves(totals, Level(mixes=True, preferred="p100", guaranteed=2))
    assert (both.types, both.preferred, both.most, both.guaranteed) == (("v100", "t4"), "", 16, 2)
    assert 0 < both.rate({"v100": 2, "t4": 1}) == model.rate({"v100": 2, "t4": 1})
    one = model.type_curves(totals, Level(preferred="t4"))
    assert one.rate({"v100": 2, "t4": 1}) == 0.0 and not one.movable and one.preferred == "t4"
    with pytest.raises(ProfileError, match="minP 17 exceeds maxP 16"):
        model.type_curves(totals, Level(guaranteed=17))


def test_speeds_are_learned_from_steps_on_changing_mixes() -> None:
    truth = LogicalWorkers(16, TABLE)
    belief = replace(truth, speeds={"v100": DeviceSpeed(1.0), "p100": DeviceSpeed(0.2), "t4": DeviceSpeed(1.7)})
    for _ in range(12):
        for mix in ({"v100": 2}, {"p100": 1}, {"t4": 4}, {"t4": 1, "v100": 1}):
            deal = belief.deal(mix)
            assert deal is not None
            seen_s = max(truth.speeds[device_type].busy_s(n) for device_type, n in deal.workers.items())
            belief = belief.learn(mix, seen_s)
    for device_type, speed in truth.speeds.items():
        assert belief.speeds[device_type].seconds == pytest.approx(speed.seconds, rel=0.05)
    assert belief.learn({"v100": 2}, 0.0) == belief


@given(
    st.integers(2, 16),
    st.dictionaries(st.sampled_from(("a", "b", "c")), st.floats(0.01, 1.0), min_size=2),
    st.floats(0.0, 0.2),
)
def test_the_model_is_found_again_from_the_speeds_it_gives(
    count: int, seconds: dict[str, float], gradient_s: float
) -> None:
    truth = LogicalWorkers(count, {device_type: DeviceSpeed(s) for device_type, s in seconds.items()}, Sync(gradient_s))
    curves = {device_type: curve for device_type in seconds if (curve := truth.curve(device_type, 2)) is not None}
    found = fit_workers(count, curves)
    assert found.sync.gradient_s == pytest.approx(gradient_s, abs=1e-9)
    for device_type, s in seconds.items():
        assert found.speeds[device_type].seconds == pytest.approx(s)


def test_the_costliest_exchange_that_was_seen_counts() -> None:
    curves = {"a": Curve((1, 2), (1.0, 2.0)), "b": Curve((1, 2), (0.5, 0.8))}
    found = fit_workers(4, curves)
    assert found.sync.step_s(2) == pytest.approx(1 / 0.8 - 1.0)
    assert found.rate({"a": 1, "b": 1}) < LogicalWorkers(4, found.speeds).rate({"a": 1, "b": 1})


def test_a_change_is_worth_what_it_saves_beyond_its_pause() -> None:
    assert saved_s(100.0, 1.0, 2.0, 20.0) == pytest.approx(30.0)
    assert saved_s(100.0, 1.0, 1.1, 20.0) < 0
    assert saved_s(100.0, 0.0, 1.0, 20.0) == inf
    assert saved_s(100.0, 1.0, 0.0, 0.0) == -inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": 0.0}, "seconds per mini-batch must be positive"),
        ({"most_workers": 0}, "logical workers per device"),
        ({"executors": 0}, "executors per device"),
        ({"interference": 1.5}, "interference 1.5"),
    ],
)
def test_speeds_that_cannot_be_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        replace(DeviceSpeed(1.0), **change)  # type: ignore[arg-type]
    with pytest.raises(ProfileError, match="maxP 0"):
        LogicalWorkers(0, TABLE)
