"""One round: who starts on whose devices, who grows, and what a bias changes."""

from dataclasses import replace

from springtide.core.decisions import JobView, Progress, Status
from springtide.core.jobs import FREE, Job, JobId, Overhead
from springtide.core.typed_curves import Mix
from springtide.policies.easyscale.proposals import DraftAllocation, draft_job
from springtide.policies.easyscale.rounds import USUAL, Bias, hold_round
from springtide.throughput.heterogeneous import DeviceSpeed, Level, LogicalWorkers

TOTALS = {"gpu": 4}
NAMES = [JobId(name) for name in "abcde"]


def add_job(
    draft: DraftAllocation, index: int, steps: float, held: int = 0, priority: int = 0, overhead: Overhead = FREE
) -> None:
    """Put a job of four workers, a step a second on four devices, into a draft."""
    typed = LogicalWorkers(4, {"gpu": DeviceSpeed(1.0)}).type_curves(TOTALS, Level())
    job = Job(NAMES[index], index, 0.0, steps, typed.curves["gpu"], overhead=overhead, priority=priority, typed=typed)
    mix: Mix = {"gpu": held} if held else {}
    view = JobView(job, Progress(steps, typed.rate(mix)), Status.ADMITTED, share=held, mix=mix)
    draft.enter(draft_job(0.0, view, typed, typed.types, False))


def hand_out(draft: DraftAllocation, bias: Bias = USUAL) -> dict[str, int]:
    """How many devices each job has after a round."""
    hold_round(draft, {}, bias)
    return {str(job_id): entry.size for job_id, entry in draft.entries.items()}


def make_draft(*jobs: tuple[float, int]) -> DraftAllocation:
    """Jobs of so many steps that hold so many devices."""
    draft = DraftAllocation({}, dict(TOTALS))
    for index, (steps, held) in enumerate(jobs):
        add_job(draft, index, steps, held)
    return draft


def test_a_waiting_job_starts_on_what_another_gives_back() -> None:
    assert hand_out(make_draft((100, 4), (10, 0))) == {"a": 2, "b": 2}
    assert hand_out(make_draft((100, 1), (100, 1), (100, 1), (100, 1), (10, 0)))["e"] == 0


def test_a_kept_job_neither_gives_nor_grows() -> None:
    assert hand_out(make_draft((100, 4), (10, 0)), Bias(kept=frozenset(NAMES[:1]))) == {"a": 4, "b": 0}
    assert hand_out(make_draft((100, 1)), Bias(kept=frozenset(NAMES[:1]))) == {"a": 1}


def test_what_is_given_back_goes_round_again_and_a_mix_that_stays_costs_nothing() -> None:
    draft = make_draft((100, 3), (100, 1))
    assert hand_out(draft, Bias(cleared=frozenset(NAMES[:2]))) == {"a": 2, "b": 2}
    alone = make_draft((100, 4))
    assert hand_out(alone, Bias(cleared=frozenset(NAMES[:1]))) == {"a": 4}
    assert not alone.entries[NAMES[0]].is_changing


def test_the_shortest_takes_what_it_can_use() -> None:
    everyone = frozenset(NAMES[:2])
    assert hand_out(make_draft((100, 2), (10, 2)), Bias(cleared=everyone, shortest_first=True)) == {"a": 2, "b": 2}
    three = make_draft((100, 1), (10, 1), (50, 1))
    assert hand_out(three, Bias(shortest_first=True)) == {"a": 1, "b": 2, "c": 1}


def test_priority_goes_before_speed_and_stops_a_lower_one() -> None:
    draft = DraftAllocation({}, {"gpu": 1})
    add_job(draft, 0, 100, 1)
    add_job(draft, 1, 100, priority=1)
    assert hand_out(draft) == {"a": 0, "b": 1}
    growing = DraftAllocation({}, {"gpu": 3})
    add_job(growing, 0, 100, 1)
    add_job(growing, 1, 100, 1, priority=1)
    assert hand_out(growing) == {"a": 1, "b": 2}


def test_a_job_about_to_end_is_left_alone_where_a_change_costs_more() -> None:
    draft = DraftAllocation({}, dict(TOTALS))
    add_job(draft, 0, 30, 4, overhead=Overhead(20.0))
    add_job(draft, 1, 100, overhead=Overhead(20.0))
    assert hand_out(draft) == {"a": 4, "b": 0}
    draft.entries[NAMES[0]] = replace(draft.entries[NAMES[0]], work_left=500.0)
    assert hand_out(draft)["b"] == 2
