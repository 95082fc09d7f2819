"""What a policy may not say: refused with the job, the value and the rule, and the world is as it was."""

from math import inf, nan

import pytest

from springtide.core.curves import Curve
from springtide.core.decisions import Answer, Decision, Status
from springtide.core.devices import Cluster, NodeGroup, NodeSlice
from springtide.core.jobs import Job, JobId
from springtide.core.world import World, check_decision
from springtide.errors import PolicyError

A, B, NOBODY = JobId("a"), JobId("b"), JobId("nobody")
ADMITTED = Answer(Status.ADMITTED)
CURVE = Curve((1, 2), (1.0, 2.0))
FIRST, BOTH, THIRD = (NodeSlice(0, 0b001),), (NodeSlice(0, 0b011),), (NodeSlice(0, 0b100),)


def open_world() -> World:
    """Three devices; job a, with a deadline, holds the first; b has just arrived."""
    world = World(Cluster((NodeGroup(1, 3, "cpu"),)))
    world.arrive(Job(A, 0, 0.0, 100.0, CURVE, deadline_s=500.0), 0.0)
    world.snapshot()
    world.apply(Decision(answers={A: ADMITTED}, allocations={A: FIRST}), 0.0)
    world.arrive(Job(B, 1, 1.0, 100.0, CURVE), 1.0)
    return world


REFUSED = {
    "names job nobody": Decision(answers={B: ADMITTED}, shares={NOBODY: 1}),
    "job b has just arrived and gets no answer": Decision(),
    "job a is admitted and is told declined; an answer is never revoked": Decision(
        answers={A: Answer(Status.DECLINED), B: ADMITTED}
    ),
    "job b is told finished; an answer is one of": Decision(answers={B: Answer(Status.FINISHED)}),
    "job b is admitted and promised; only admitted jobs with a deadline": Decision(
        answers={B: Answer(Status.ADMITTED, promised=True)}
    ),
    "job b is declined and given devices": Decision(answers={B: Answer(Status.DECLINED)}, allocations={B: THIRD}),
    "are not all free": Decision(answers={B: ADMITTED}, allocations={B: FIRST}),
    "on node 4; there are 1 nodes": Decision(answers={B: ADMITTED}, allocations={B: (NodeSlice(4, 1),)}),
    "job b is given 3 devices; it runs on 1, 2": Decision(
        answers={B: ADMITTED}, allocations={A: (), B: (NodeSlice(0, 0b111),)}
    ),
    "woken at 1.0 s, which is not after 1.0 s": Decision(answers={B: ADMITTED}, wake_at_s=1.0),
    "woken at nan s, which is not after 1.0 s": Decision(answers={B: ADMITTED}, wake_at_s=nan),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_what_cannot_be_carried_out_is_refused(rule: str) -> None:
    with pytest.raises(PolicyError, match=rule):
        check_decision(1.0, open_world().snapshot(), REFUSED[rule])


def test_jobs_may_swap_devices_and_grow_into_those_given_back() -> None:
    world = open_world()
    decision = Decision(answers={B: ADMITTED}, allocations={A: THIRD, B: BOTH}, wake_at_s=inf)
    check_decision(1.0, world.snapshot(), decision)
    world.apply(decision, 1.0)
    assert (world.jobs[A].devices, world.jobs[B].devices, list(world.free_masks)) == (THIRD, BOTH, [0])


def test_a_decision_that_fails_halfway_changes_nothing() -> None:
    world = open_world()
    before, free = dict(world.jobs), list(world.free_masks)
    broken = Decision(answers={B: ADMITTED}, allocations={B: THIRD, A: THIRD}, memory={"seen": 1})
    with pytest.raises(PolicyError, match="are not all free"):
        world.apply(broken, 1.0)
    assert (dict(world.jobs), list(world.free_masks), world.snapshot().memory) == (before, free, {})
