"""The live world: what it corrects in the book-keeping that it shares with the simulator."""

from springtide.control.worlds import LiveWorld
from springtide.core.curves import Curve
from springtide.core.decisions import Decision
from springtide.core.devices import Cluster, Devices, NodeGroup, NodeSlice
from springtide.core.jobs import Job, JobId, Overhead

JOB = Job(JobId("a"), 0, 0.0, 100.0, Curve((1, 2), (1.0, 2.0)), overhead=Overhead(base_s=1.0, start_s=10.0))


def give(world: LiveWorld, mask: int, now_s: float) -> float:
    """Give the job other devices; returns when it makes steps again."""
    devices: Devices = (NodeSlice(0, mask),) if mask else ()
    ((_, after),) = world.apply(Decision(allocations={JOB.id: devices}), now_s)
    assert world.jobs[JOB.id] is after
    return after.progress.paused_until_s


def test_a_change_while_a_job_starts_does_not_shorten_its_start() -> None:
    world = LiveWorld(Cluster((NodeGroup(1, 2, "cpu"),)))
    world.arrive(JOB, 0.0)
    assert give(world, 0b11, 0.0) == 11.0
    assert give(world, 0b01, 2.0) == 11.0
    assert give(world, 0b11, 10.5) == 11.5
    assert give(world, 0b01, 20.0) == 21.0


def test_a_job_that_lost_its_devices_starts_anew() -> None:
    world = LiveWorld(Cluster((NodeGroup(1, 2, "cpu"),)))
    world.arrive(JOB, 0.0)
    give(world, 0b11, 0.0)
    give(world, 0, 2.0)
    assert give(world, 0b01, 3.0) == 14.0
