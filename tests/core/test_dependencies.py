from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.dependencies import AfterEnd, Outcome, judge_end, judge_ends, order_jobs
from springtide.core.job_states import ENDED, JobState
from springtide.errors import JobError

NAMES = st.sampled_from("abcdefgh")
GRAPHS = st.dictionaries(NAMES, st.lists(NAMES | st.just("elsewhere"), max_size=4))


def test_an_end_is_judged_by_what_was_waited_for() -> None:
    judged = {(end, state): judge_end(end, state) for end in AfterEnd for state in JobState}
    assert all(judged[end, state] is Outcome.WAIT for end in AfterEnd for state in set(JobState) - ENDED)
    assert judged[AfterEnd.OK, JobState.SUCCEEDED] is Outcome.GO
    assert judged[AfterEnd.OK, JobState.FAILED] is judged[AfterEnd.OK, JobState.DECLINED] is Outcome.NEVER
    assert judged[AfterEnd.FAILED, JobState.CANCELLED] is Outcome.GO
    assert judged[AfterEnd.FAILED, JobState.SUCCEEDED] is Outcome.NEVER
    assert all(judged[AfterEnd.ANY, state] is Outcome.GO for state in ENDED)


@given(st.lists(st.tuples(st.sampled_from(AfterEnd), st.sampled_from(JobState))))
def test_several_go_when_all_go_and_never_when_one_never_does(waits: list[tuple[AfterEnd, JobState]]) -> None:
    judged = [judge_end(*wait) for wait in waits]
    whole = judge_ends(waits)
    assert (whole is Outcome.NEVER) == (Outcome.NEVER in judged)
    assert (whole is Outcome.GO) == all(one is Outcome.GO for one in judged)


@given(GRAPHS)
def test_each_job_comes_after_those_it_waits_for_or_a_circle_is_shown(graph: dict[str, list[str]]) -> None:
    try:
        order = order_jobs(graph)
    except JobError as error:
        circle = str(error).partition("circle: ")[2].partition(";")[0].split(" -> ")
        assert circle[0] == circle[-1] and len(circle) > 1
        assert all(later in graph[name] for name, later in pairwise(circle))
        return
    assert sorted(order) == sorted(graph)
    assert all(order.index(other) < order.index(name) for name in graph for other in graph[name] if other in graph)


def test_a_circle_is_named() -> None:
    with pytest.raises(JobError, match="in a circle: a -> b -> c -> a; take one `after` out"):
        order_jobs({"a": ["b"], "b": ["c"], "c": ["a"], "d": []})
