from hypothesis import given
from hypothesis import strategies as st
from tests.policies.replays import JobSketch, run

from springtide.core.jobs import JobId
from springtide.policies.research.shockwave import WINDOW, Bidder, buy_rounds, judge, shockwave


def bidder(name: str, gang: int = 1, needs: float = 40.0, done: float = 0.0, budget: float = 1.0) -> Bidder:
    return Bidder(JobId(name), gang, needs, done, budget)


def test_equal_jobs_buy_equal_rounds() -> None:
    plan = buy_rounds([bidder("a", 4), bidder("b", 4)], 4)
    assert plan == {"a": WINDOW // 2, "b": WINDOW // 2}


def test_a_larger_budget_buys_more() -> None:
    plan = buy_rounds([bidder("a", 4, budget=4.0), bidder("b", 4)], 4)
    assert plan[JobId("a")] > plan[JobId("b")] > 0


def test_nobody_buys_more_rounds_than_it_needs() -> None:
    assert buy_rounds([bidder("a", needs=2.5), bidder("b")], 4) == {"a": 3, "b": WINDOW}


def test_turns_are_taken_and_everybody_ends() -> None:
    jobs = [JobSketch(2000, 0, requested=4, speeds={4: 1.0}) for _ in range(3)]
    replay = run(shockwave, jobs)
    assert set(replay.finishes) == {"a", "b", "c"}
    assert max(replay.first_start(name) for name in "abc") <= 4 * 120.0
    spread = max(replay.finishes.values()) - min(replay.finishes.values())
    assert spread < 2500.0


def test_a_short_job_that_came_late_is_not_kept_behind_long_ones() -> None:
    replay = run(shockwave, [JobSketch(20_000, 0, requested=4), JobSketch(400, 500, requested=4)])
    assert replay.finishes["b"] < 1500.0


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.floats(0.1, 60), st.floats(0, 0.9)), min_size=1, max_size=5),
    st.integers(4, 8),
)
def test_a_plan_fits_the_window_and_wastes_nothing_it_could_sell(
    jobs: list[tuple[int, float, float]], devices: int
) -> None:
    bidders = [bidder(str(number), *job) for number, job in enumerate(jobs)]
    plan = buy_rounds(bidders, devices)
    used = sum(one.gang * plan[one.id] for one in bidders)
    assert used <= devices * WINDOW
    assert all(0 <= plan[one.id] <= one.most for one in bidders)
    for one in bidders:  # no single round more would fit and help
        if plan[one.id] < one.most and used + one.gang <= devices * WINDOW:
            raise AssertionError(f"{one.id} could have had another round: {plan}")
    empty = {one.id: 0 for one in bidders}
    assert judge(bidders, plan) >= judge(bidders, empty)
