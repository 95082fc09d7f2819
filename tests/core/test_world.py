"""The book-keeping of pauses: a change begins a new one, and never shortens a start-up."""

from dataclasses import replace

from springtide.control.scheduling.live_world import LiveWorld
from springtide.core.curves import Curve
from springtide.core.decisions import Decision
from springtide.core.devices import Cluster, Devices, NodeGroup, NodeSlice
from springtide.core.jobs import Job, JobId, Overhead
from springtide.core.world import World

CURVE = Curve((1, 2), (1.0, 2.0))


def open_world(overhead: Overhead) -> World:
    """Two devices, and a job that waits for them."""
    world = World(Cluster((NodeGroup(1, 2, "cpu"),)))
    world.arrive(Job(JobId("a"), 0, 0.0, 100.0, CURVE, overhead=overhead), 0.0)
    return world


def give(world: World, mask: int, now_s: float) -> float:
    """Give the job other devices; returns when it makes steps again."""
    devices: Devices = (NodeSlice(0, mask),) if mask else ()
    ((_, after),) = world.apply(Decision(allocations={JobId("a"): devices}), now_s)
    return after.progress.paused_until_s


def test_a_change_during_a_pause_begins_a_new_one() -> None:
    world = open_world(Overhead(base_s=4.0, per_doubling_s=2.0))
    assert give(world, 0b11, 0.0) == 8.0
    assert give(world, 0b01, 1.0) == 7.0
    assert give(world, 0b11, 5.0) == 13.0


def test_a_change_while_a_job_starts_does_not_shorten_its_start() -> None:
    world = open_world(Overhead(base_s=1.0, start_s=10.0))
    assert give(world, 0b11, 0.0) == 11.0
    assert give(world, 0b01, 2.0) == 11.0
    assert give(world, 0b11, 10.5) == 11.5
    assert give(world, 0b01, 20.0) == 21.0


def test_a_job_that_lost_its_devices_starts_anew() -> None:
    world = open_world(Overhead(base_s=1.0, start_s=10.0))
    give(world, 0b11, 0.0)
    give(world, 0, 2.0)
    assert give(world, 0b01, 3.0) == 14.0


def test_who_holds_what_is_known_through_every_change_and_step_back() -> None:
    world, job = open_world(Overhead(base_s=1.0)), JobId("a")
    assert world.snapshot().holders == ({},)
    give(world, 0b01, 0.0)
    seen, mark = world.snapshot().holders, world.mark()
    give(world, 0b11, 1.0)
    assert (seen, world.snapshot().holders) == (({job: 0b01},), ({job: 0b11},))
    world.roll_back(mark)
    assert world.snapshot().holders == ({job: 0b01},)
    world.finish(job, 2.0)
    assert world.snapshot().holders == ({},)


def test_a_world_that_is_corrected_counts_anew_who_holds_what() -> None:
    world, job = LiveWorld(Cluster((NodeGroup(2, 2, "cpu"),))), JobId("a")
    world.arrive(Job(job, 0, 0.0, 100.0, CURVE), 0.0)
    assert world.snapshot().holders == ({}, {})
    give(world, 0b11, 0.0)
    twin = world.copy()
    view = world.jobs[job]
    world.finish(job, 1.0)
    world.restore(replace(view, devices=(NodeSlice(1, 0b11),)))
    assert world.snapshot().holders == ({}, {job: 0b11})
    assert twin.snapshot().holders == ({job: 0b11}, {})
