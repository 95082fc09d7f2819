"""How jobs without a deadline share devices: who starts, who grows, who is favoured, and that nobody starves."""

from dataclasses import replace
from itertools import accumulate
from math import inf

import pytest
from tests.policies.replays import JobSketch, run

from springtide.core.curves import Curve
from springtide.core.decisions import JobView, Progress
from springtide.core.jobs import Job, JobId, Overhead
from springtide.policies import springtide
from springtide.policies.planning.best_effort import (
    HALF_LIFE_S,
    STARVED_S,
    USAGE,
    Usage,
    keep_held,
    next_starving_s,
    read_usage,
    seat_starved,
    share_out,
    weigh_place,
    write_usage,
)

LINEAR = Curve((1, 2, 4, 8), (1.0, 2.0, 4.0, 8.0))
FLAT = Curve((1, 2, 4, 8), (1.0, 1.05, 1.08, 1.1))


def wait(  # a job that holds nothing
    name: str,
    work: float,
    index: int = 0,
    curve: Curve = LINEAR,
    submit_s: float = 0.0,
    user: str = "",
    priority: int = 0,
    weight: float = 1.0,
    overhead: Overhead | None = None,
) -> JobView:
    job = Job(
        JobId(name),
        index,
        submit_s,
        work,
        curve,
        overhead=overhead or Overhead(),
        user=user,
        priority=priority,
        weight=weight,
    )
    return JobView(job, Progress(work, since_s=submit_s))


def run_on(view: JobView, share: int, now_s: float = 0.0) -> JobView:
    """The same job on so many devices."""
    progress = Progress(view.progress.work_left, view.job.curve.rate(share), now_s)
    return JobView(view.job, progress, share=share)


def test_the_smallest_start_first_and_the_smallest_grows_first() -> None:
    views = [wait("large", 100.0), wait("small", 1.0, 1), wait("middle", 10.0, 2)]
    assert share_out(0.0, views, 1, None) == {"small": 1}
    assert share_out(0.0, views, 2, None) == {"small": 1, "middle": 1}
    assert share_out(0.0, views, 8, None) == {"small": 4, "middle": 2, "large": 2}


def test_jobs_that_hardly_scale_share_alike() -> None:
    views = [wait("large", 100.0, curve=FLAT), wait("small", 50.0, 1, curve=FLAT)]
    assert share_out(0.0, views, 4, None) == {"large": 2, "small": 2}


def test_weights_are_those_of_the_optimum_for_one_speed_up() -> None:
    """With speed k^p the shares that maximise the weighted speed are heSRPT's: (i/m)^q - ((i-1)/m)^q."""
    power = 2.0  # p = 1/2: shares go with the square of the weight
    shares = [weigh_place(place, power) ** 2 for place in (1, 2, 3)]
    assert [share / sum(shares) for share in shares] == pytest.approx([1 / 9, 3 / 9, 5 / 9])


def test_a_large_gang_is_passed_over_but_not_for_ever() -> None:
    gang = wait("gang", 100.0, curve=Curve((8,), (8.0,)))
    others = [wait(f"small-{index}", 5.0, index + 1, submit_s=STARVED_S) for index in range(3)]
    assert "gang" not in share_out(STARVED_S - 1, [gang, *others], 8, None)
    assert share_out(STARVED_S + 1, [gang, *others], 8, None) == {"gang": 8}
    assert next_starving_s(10.0, [gang], {}) == STARVED_S
    assert next_starving_s(10.0, [gang], {gang.job.id: 8}) == inf


def test_priority_comes_before_size_for_the_first_devices_only() -> None:
    views = [wait("small", 1.0), wait("large", 100.0, 1, priority=5)]
    assert share_out(0.0, views, 1, None) == {"large": 1}
    assert share_out(0.0, views, 3, None) == {"large": 1, "small": 2}


def test_a_job_that_runs_grows_only_if_it_ends_earlier_by_more_than_the_pause() -> None:
    pause = Overhead(base_s=10.0)
    assert share_out(0.0, [run_on(wait("short", 30.0, overhead=pause), 1)], 2, None) == {"short": 1}
    assert share_out(0.0, [run_on(wait("long", 300.0, overhead=pause), 1)], 2, None) == {"long": 2}


def test_nobody_shrinks_to_devices_that_nobody_takes() -> None:
    pair = Curve((2,), (2.0,))
    views = [run_on(wait("runs", 50.0), 4), wait("pair", 1.0, 1, curve=pair)]
    assert share_out(0.0, views, 5, None) == {"pair": 2, "runs": 2}
    assert share_out(0.0, views[:1], 5, None) == {"runs": 4}


def test_a_user_with_many_jobs_gets_no_more_than_one_with_few() -> None:
    flood = [wait(f"flood-{index}", 1.0 + index, index, user="ann") for index in range(20)]
    single = wait("single", 1000.0, 20, user="bob")
    assert "single" not in share_out(0.0, [*flood, single], 4, None)
    assert "single" in share_out(0.0, [*flood, single], 4, Usage())


def test_what_a_user_has_used_lately_counts_against_it_and_less_with_time() -> None:
    ann, bob = wait("ann", 10.0, user="ann"), wait("bob", 10.0, 1, user="bob")
    assert share_out(0.0, [ann, bob], 1, Usage(0.0, {"ann": 100.0, "bob": 50.0})) == {"bob": 1}
    assert share_out(0.0, [ann, bob], 1, Usage(0.0, {"ann": 50.0, "bob": 100.0})) == {"ann": 1}
    heavier = wait("ann", 10.0, user="ann", weight=4.0)  # four parts of five are hers
    assert share_out(0.0, [heavier, bob], 1, Usage(0.0, {"ann": 100.0, "bob": 50.0})) == {"ann": 1}
    remembered = {USAGE: write_usage(Usage(0.0, {"ann": 100.0}), [run_on(bob, 2)], {})}
    later = read_usage(remembered, HALF_LIFE_S, [run_on(bob, 2)])
    assert later == Usage(HALF_LIFE_S, {"ann": 50.0, "bob": 2 * HALF_LIFE_S})


def test_what_a_job_held_up_to_its_end_counts() -> None:
    ann, bob = wait("ann", 10.0, user="ann"), wait("bob", 10.0, 1, user="bob")
    remembered = {USAGE: write_usage(Usage(), [run_on(ann, 1), bob], {ann.job.id: 4})}
    assert read_usage(remembered, 10.0, [bob]) == Usage(10.0, {"ann": 40.0}), "it grew to 4, and is gone"


def test_usage_is_counted_only_where_there_are_several_users() -> None:
    ann, bob = wait("ann", 10.0, user="ann"), wait("bob", 10.0, 1, user="bob")
    assert read_usage({}, 5.0, [ann]) is None
    assert read_usage({}, 5.0, [ann, bob]) == Usage(5.0)


def test_a_promised_job_with_little_slack_goes_before_best_effort_work() -> None:
    """Alone it would need 95 of its 100 s on one device: it takes the second one, and the other job waits."""
    tight, loose = (JobSketch(95, 0, speeds={1: 1.0, 2: 2.0}, deadline_s=deadline_s) for deadline_s in (100, 190))
    other, late = JobSketch(200, 0, speeds={1: 1.0}), JobSketch(1, 2, speeds={1: 1.0})
    beside_tight = run(springtide.springtide, [other, tight, late], "1x2:cpu")
    assert beside_tight.changes["b"] == [(0, 2)]  # nor does it shrink to little slack for the one that comes later
    assert beside_tight.first_start("a") == beside_tight.finishes["b"] == 47.5
    assert run(springtide.springtide, [other, loose], "1x2:cpu").first_start("a") == 0.0


def test_jobs_that_are_equal_but_for_a_pause_do_not_trade_devices() -> None:
    bent, pause = Curve((1, 2, 4), (10.0, 18.0, 32.0)), Overhead(base_s=0.2)
    behind = run_on(wait("behind", 199_946.0, 1, bent, overhead=pause), 2)  # it paused when it grew
    ahead = run_on(wait("ahead", 199_944.0, 0, bent, overhead=pause), 1)
    assert share_out(0.0, [ahead, behind], 3, None) == {"ahead": 1, "behind": 2}
    clearly_ahead = run_on(wait("ahead", 199_900.0, 0, bent, overhead=pause), 1)
    assert share_out(0.0, [clearly_ahead, behind], 3, None) == {"ahead": 2, "behind": 1}


def test_nobody_stops_for_an_urgent_job_that_cannot_start() -> None:
    running = [run_on(wait(f"small-{index}", 1e9, index, submit_s=STARVED_S), 1, STARVED_S) for index in range(4)]
    gang, single = wait("gang", 100.0, 4, Curve((8,), (8.0,))), wait("single", 100.0, 5, submit_s=1.0)
    assert keep_held(STARVED_S + 1, running, 4, [gang], clears=True) == {view.job.id: 1 for view in running}
    assert keep_held(STARVED_S + 1, running, 4, [gang, single], clears=True) == {"single": 1}


def test_who_has_starved_and_runs_keeps_its_least_share_before_others_keep_more() -> None:
    important, starved = run_on(wait("important", 1e9, priority=1), 4), run_on(wait("starved", 1e9, 1), 1)
    late_s = STARVED_S + 1
    views = [replace(view, progress=replace(view.progress, since_s=late_s)) for view in (important, starved)]
    assert keep_held(late_s, views, 4) == {"important": 2, "starved": 1}


def test_the_planner_is_woken_when_one_that_has_starved_goes_before_one_that_runs() -> None:
    started_s = STARVED_S + 10.0
    runs, waits = run_on(wait("runs", 1e9), 1, started_s), wait("waits", 1e9, 1, submit_s=5.0)
    over_s = next_starving_s(started_s, [runs, waits], {runs.job.id: 1})
    assert over_s == pytest.approx(started_s + STARVED_S + 5.0, abs=0.01)
    assert share_out(over_s - 1.0, [runs, waits], 1, None) == {"runs": 1}
    assert share_out(over_s, [runs, waits], 1, None) == {"waits": 1}
    assert next_starving_s(over_s, [runs, waits], {runs.job.id: 1}) == inf


@pytest.mark.parametrize(
    ("free", "held", "stopping"),
    [
        ([1], [2], 1),  # the pair gets room, the gang would not have it either way
        ([2], [4], 0),  # the pair has room already, and the gang has not starved
        ([4], [1, 1], 2),  # the gang goes first
    ],
)
def test_only_who_has_starved_makes_jobs_stop_that_wait_for_an_answer(
    free: list[int], held: list[int], stopping: int
) -> None:
    gang = wait("gang", 9.0, curve=Curve((4,), (4.0,)), submit_s=STARVED_S, priority=1)
    pair = wait("pair", 9.0, 1, curve=Curve((2,), (2.0,)))
    seated = seat_starved(STARVED_S + 1, [gang, pair], accumulate([*free, *held]))
    assert seated.index(max(seated)) == stopping


def test_two_small_jobs_do_not_overtake_the_one_that_starved_first() -> None:
    large = wait("large", 9.0, curve=Curve((4,), (4.0,)))
    small = [wait(f"small-{index}", 9.0, index, submit_s=1.0) for index in (1, 2)]
    seated = seat_starved(STARVED_S + 2, [large, *small], accumulate([2, 2]))
    assert seated.index(max(seated)) == 1
