"""When there is nothing to decide, and that leaving the decision out changes nothing."""

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.replays import JobSketch, Replay, run

from springtide.core.decisions import Decision, Snapshot
from springtide.core.jobs import Overhead
from springtide.policies import elasticflow, springtide
from springtide.policies.planning.admission import decide_firmly
from springtide.policies.planning.plan_table import is_at_rest

PAUSE = Overhead(base_s=2.0)


def find_rests(sketches: list[JobSketch], cluster: str) -> tuple[set[float], Replay]:
    """The instants of a run that find everyone at rest, and the run."""
    rests = set()

    def watch(now_s: float, snapshot: Snapshot) -> Decision:
        if is_at_rest(now_s, snapshot):
            rests.add(now_s)
        return elasticflow.elasticflow(now_s, snapshot)

    return rests, run(watch, sketches, cluster)


def test_jobs_that_hold_all_they_can_use_are_at_rest() -> None:
    rests, replay = find_rests([JobSketch(40, 0, deadline_s=100), JobSketch(8, 0, deadline_s=100)], "2x4:cpu")
    assert rests == set(replay.finishes.values()) == {2.0, 10.0}


def test_jobs_that_could_grow_or_have_no_promise_are_not_at_rest() -> None:
    jobs = [JobSketch(400, 0, deadline_s=1000), JobSketch(8, 0, deadline_s=1000), JobSketch(8, 0)]
    rests, replay = find_rests(jobs, "1x4:cpu")
    assert rests == {max(replay.finishes.values())}


sketches = st.builds(
    JobSketch,
    work=st.integers(5, 60).map(float),
    submit_s=st.integers(0, 30).map(float),
    deadline_s=st.integers(40, 120).map(float) | st.just(float("inf")),
    overhead=st.just(PAUSE),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(sketches, min_size=1, max_size=8), st.sampled_from(["1x4:cpu", "2x4:cpu", "6x4:cpu"]))
def test_leaving_out_decisions_at_rest_changes_nothing(drawn: list[JobSketch], cluster: str) -> None:
    jobs = sorted(drawn, key=lambda sketch: sketch.submit_s)
    for module, policy in ((elasticflow, elasticflow.elasticflow), (springtide, springtide.springtide)):
        quick, thorough = run(policy, jobs, cluster), run(partial(decide_firmly, propose=module.propose), jobs, cluster)
        assert (quick.told, quick.changes, quick.finishes) == (thorough.told, thorough.changes, thorough.finishes)
