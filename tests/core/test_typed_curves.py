"""What a job may hold of each device type, and how fast it then runs."""

from dataclasses import dataclass

import pytest

from springtide.core.curves import Curve
from springtide.core.decisions import Decision
from springtide.core.devices import NodeSlice, parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.core.typed_curves import Mix, TypedCurves
from springtide.core.world import World
from springtide.errors import PolicyError, ProfileError

CLUSTER = parse_cluster("1x4:a100,2x2:t4")
FAST, SLOW = Curve((1, 2, 4), (4.0, 7.0, 12.0)), Curve((1, 2), (1.0, 1.5))


@dataclass(frozen=True, slots=True)
class Sum:
    """A blend for tests: a hundred times the number of devices."""

    most = 12

    def rate(self, mix: Mix) -> float:
        return 100.0 * sum(mix.values())


def build_job(typed: TypedCurves) -> Job:
    return Job(JobId("a"), 0, 0.0, 1000.0, FAST, overhead=Overhead(10.0), typed=typed)


D1 = TypedCurves({"a100": FAST, "t4": SLOW})
D2 = TypedCurves({"a100": FAST, "t4": SLOW}, Sum(), movable=True)


def test_one_type_runs_at_its_curve_and_several_at_their_blend() -> None:
    assert D1.rate({}) == 0.0
    assert D1.rate({"t4": 2}) == D2.rate({"t4": 2, "a100": 0}) == 1.5
    assert D2.rate({"a100": 2, "t4": 1}) == 300.0
    assert D1.rate({"a100": 2, "t4": 1}) == 0.0
    assert D1.rate({"a100": 3}) == 0.0
    assert (D1.fastest, D1.most, D2.most, D1.types) == ("a100", 4, 12, ("a100", "t4"))


def test_what_a_level_forbids_is_named() -> None:
    assert "D2" in D1.objection({"a100": 1, "t4": 1})
    assert "where it started" in D1.objection({"t4": 1}, first_type="a100")
    assert D2.objection({"t4": 1}, first_type="a100") == ""
    assert "no speed on v100" in D2.objection({"v100": 1})


def test_more_guaranteed_than_it_can_hold_is_refused() -> None:
    with pytest.raises(ProfileError, match="minP 8 exceeds maxP 4"):
        TypedCurves({"a100": FAST}, guaranteed=8)
    with pytest.raises(ProfileError, match="'h100' has no speed; there are: a100"):
        TypedCurves({"a100": FAST}, preferred="h100")


def test_the_world_computes_the_rate_from_the_types_held() -> None:
    world = World(CLUSTER)
    world.arrive(build_job(D2), 0.0)
    job_id = JobId("a")
    ((_, after),) = world.apply(Decision(allocations={job_id: (NodeSlice(0, 1), NodeSlice(2, 3))}), 5.0)
    assert (after.share, after.mix, after.first_device_type) == (3, {"a100": 1, "t4": 2}, "a100")
    assert (after.progress.rate, after.progress.paused_until_s) == (300.0, 15.0)
    ((_, stopped),) = world.apply(Decision(allocations={job_id: ()}), 20.0)
    assert (stopped.share, stopped.mix, stopped.first_device_type, stopped.progress.rate) == (0, {}, "a100", 0.0)


def test_the_world_refuses_a_mix_that_the_level_forbids() -> None:
    world = World(CLUSTER)
    world.arrive(build_job(D1), 0.0)
    with pytest.raises(PolicyError, match="job a cannot run on 1 a100, 2 t4: determinism D1"):
        world.apply(Decision(allocations={JobId("a"): (NodeSlice(0, 1), NodeSlice(2, 3))}), 5.0)


def test_a_d1_job_stays_with_the_type_it_started_on() -> None:
    world = World(CLUSTER)
    world.arrive(build_job(D1), 0.0)
    world.apply(Decision(allocations={JobId("a"): (NodeSlice(1, 1),)}), 0.0)
    world.apply(Decision(allocations={JobId("a"): ()}), 1.0)
    with pytest.raises(PolicyError, match="keeps it on t4, where it started"):
        world.apply(Decision(allocations={JobId("a"): (NodeSlice(0, 1),)}), 2.0)


def test_devices_are_counted_by_type() -> None:
    assert CLUSTER.totals == {"a100": 4, "t4": 4}
    assert CLUSTER.count_types((NodeSlice(0, 0b101), NodeSlice(1, 1), NodeSlice(2, 3))) == {"a100": 2, "t4": 3}


def test_steps_up_and_down_are_those_that_change_the_speed() -> None:
    assert D1.list_raises({"a100": 1}, "a100") == ((1, 7.0),)  # no further than twice
    assert D1.list_raises({"a100": 2}, "a100") == ((2, 12.0),)
    assert D1.list_raises({"a100": 1}, "t4") == ()
    assert D1.list_cuts({"a100": 4}, "a100") == ((2, 7.0), (3, 4.0))
    assert D2.list_cuts({"a100": 1, "t4": 2}, "a100") == ((1, 1.5),)


def test_alone_a_job_takes_the_best_mix_of_the_cluster() -> None:
    mixes = list(D2.climb({"a100": 2, "t4": 1}))
    assert mixes == [{"a100": 1}, {"a100": 2}, {"t4": 1}, {"a100": 2, "t4": 1}]
    assert build_job(D2).alone_among_s(CLUSTER.totals) == pytest.approx(10.0 + 1000.0 / 800.0)
    assert build_job(D1).alone_among_s(CLUSTER.totals) == pytest.approx(10.0 + 1000.0 / 12.0)
    assert D1.slowest == SLOW


def test_lent_devices_come_and_go() -> None:
    world = World(CLUSTER)
    world.arrive(build_job(D2), 0.0)
    job_id = JobId("a")
    world.lend((0b0011, 0, 0b11))
    assert world.snapshot().free_masks == (0b0011, 0, 0b11)
    world.apply(Decision(allocations={job_id: (NodeSlice(0, 0b0011),)}), 0.0)
    world.lend((0b0110, 0b01, 0b11))
    assert world.leaving == (0b0001, 0, 0)
    assert world.snapshot().free_masks == (0b0100, 0b01, 0b11)
    world.apply(Decision(allocations={job_id: (NodeSlice(0, 0b0110),)}), 1.0)
    assert not world.leaving and world.snapshot().free_masks == (0, 0b01, 0b11)
    world.lend((0, 0, 0))
    world.finish(job_id, 2.0)
    assert not world.leaving and world.snapshot().free_masks == (0, 0, 0)
