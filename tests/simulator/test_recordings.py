"""Recordings keep step functions of what was held and met."""

from springtide.core.curves import Curve
from springtide.core.decisions import Decision, Snapshot
from springtide.core.devices import NodeSlice, parse_cluster
from springtide.core.jobs import Job, JobId
from springtide.simulator.engine import Simulation
from springtide.simulator.recordings import Recording

CURVE = Curve((1, 2), (1.0, 2.0))


def give_first_device(now_s: float, snapshot: Snapshot) -> Decision:
    waiting = [job_id for job_id, view in snapshot.jobs.items() if not view.share]
    free = snapshot.free_masks[0] & 1
    return Decision(allocations={waiting[0]: (NodeSlice(0, 1),)} if waiting and free else {})


def test_one_device_serves_two_jobs_in_turn() -> None:
    jobs = [
        Job(JobId(name), at, 0.0, 10.0, CURVE, deadline)
        for at, (name, deadline) in enumerate((("a", 10.0), ("b", 15.0)))
    ]
    recording = Recording()
    Simulation(parse_cluster("1x1:a100"), give_first_device, recording).run(jobs)
    assert recording.held == [(0.0, 1), (10.0, 1), (20.0, 0)]
    assert recording.submitted == [(0.0, 2)]
    assert recording.met == [(10.0, 1)]
