"""Rounds played out to the end: foreseen finishes are those that come, and the round chosen is never a worse one."""

from functools import partial

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.policies.replays import Replay

from springtide.core.decisions import Decision, JobView, Progress, Snapshot, Status
from springtide.core.devices import parse_cluster
from springtide.core.jobs import Job, JobId, Overhead
from springtide.core.typed_curves import Mix
from springtide.policies import PolicyEntry, decide
from springtide.policies.easyscale.easyscale import place
from springtide.policies.easyscale.proposals import DraftAllocation, draft_job
from springtide.policies.easyscale.rounds import LATER, USUAL, Bias, choose_round, hold_round, list_biases, play_out
from springtide.policies.elasticflow import BEST_EFFORT
from springtide.simulator.engine import Simulation
from springtide.throughput.heterogeneous import DeviceSpeed, Level, LogicalWorkers

CLUSTER = parse_cluster("1x4:fast,1x4:slow")
SPEEDS = {"fast": DeviceSpeed(1.0), "slow": DeviceSpeed(2.0)}
PAUSE = Overhead(20.0)
INF = float("inf")


def make_job(
    index: int, steps: float, workers: int = 8, mixes: bool = True, guaranteed: int = 0, totals: Mix = CLUSTER.totals
) -> Job:
    typed = LogicalWorkers(workers, SPEEDS).type_curves(totals, Level(mixes, guaranteed=guaranteed))
    return Job(JobId(f"j{index}"), index, 0.0, steps, typed.curves["fast"], overhead=PAUSE, typed=typed)


def make_view(job: Job, mix: Mix) -> JobView:
    """A job that holds a mix, its pause over."""
    assert job.typed is not None
    progress = Progress(job.work, job.typed.rate(mix))
    return JobView(job, progress, Status.ADMITTED, share=sum(mix.values()), mix=mix)


def make_draft(*views: JobView) -> DraftAllocation:
    draft = DraftAllocation({}, dict(CLUSTER.totals))
    for view in views:
        typed = view.job.typed
        assert typed is not None
        draft.enter(draft_job(0.0, view, typed, typed.types, typed.blend is not None))
    return draft


def measure(draft: DraftAllocation, bias: Bias) -> float:
    """The sum of finishes after a round."""
    tried = draft.fork()
    hold_round(tried, {}, bias)
    return play_out(0.0, tried, {}, INF)


def follow(now_s: float, snapshot: Snapshot) -> Decision:
    """The policy that a play follows: rounds in which the shortest grow first."""
    draft = DraftAllocation({}, dict(CLUSTER.totals))
    for view in snapshot.jobs.values():
        typed = view.job.typed
        assert typed is not None
        draft.enter(draft_job(now_s, view, typed, typed.types, typed.blend is not None))
    hold_round(draft, {}, LATER)
    changes = {job_id: dict(entry.mix) for job_id, entry in draft.entries.items() if entry.is_changing}
    answers = {job_id: BEST_EFFORT for job_id, view in snapshot.jobs.items() if view.status is Status.PENDING}
    return Decision(answers=answers, mixes=changes, allocations=place(snapshot, changes))


jobs_drawn = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 12), st.booleans()), min_size=1, max_size=6).map(
    lambda rows: [make_job(at, float(steps), workers, mixes) for at, (steps, workers, mixes) in enumerate(rows)]
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example([make_job(0, 26, 1, False), make_job(1, 66, 1, False), make_job(2, 69, 6, False), make_job(3, 69, 6, False)])
@given(jobs_drawn)
def test_what_is_foreseen_is_what_the_simulator_sees(jobs: list[Job]) -> None:
    replay = Replay()
    Simulation(CLUSTER, partial(decide, PolicyEntry("follow", typed=True, function=follow)), replay).run(jobs)
    foreseen_s = measure(make_draft(*(make_view(job, {}) for job in jobs)), LATER)
    assert foreseen_s == pytest.approx(sum(replay.finishes.values()))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs_drawn, st.lists(st.sampled_from(("", "fast", "slow")), min_size=6, max_size=6))
def test_the_round_chosen_is_the_best_of_all_neighbours(jobs: list[Job], held: list[str]) -> None:
    left, views = dict(CLUSTER.totals), []
    for job, device_type in zip(jobs, held, strict=False):
        mix = {device_type: 1} if device_type and left[device_type] else {}
        left = {name: count - mix.get(name, 0) for name, count in left.items()}
        views.append(make_view(job, mix))
    draft = make_draft(*views)
    before = draft.list_mixes()
    chosen = choose_round(0.0, draft, {}, weighs=True)
    assert draft.list_mixes() == before  # only tried
    all_s = (
        [measure(draft, bias) for bias in (USUAL, *list_biases(draft))] if len(jobs) > 1 else [measure(draft, USUAL)]
    )
    assert play_out(0.0, chosen.fork(), {}, INF) == pytest.approx(min(all_s))
    plain = draft.fork()
    hold_round(plain, {})
    assert choose_round(0.0, draft, {}, weighs=False).list_mixes() == plain.list_mixes()


def test_a_bound_ends_a_play_that_cannot_win() -> None:
    draft = make_draft(make_view(make_job(0, 100), {}), make_view(make_job(1, 50), {}))
    total_s = measure(draft, USUAL)
    hold_round(draft, {})
    assert play_out(0.0, draft.fork(), {}, total_s + 1.0) == pytest.approx(total_s)
    assert play_out(0.0, draft.fork(), {}, total_s - 1.0) == INF


def test_a_short_job_is_not_left_on_the_few_devices_it_starts_on() -> None:
    """The usual round takes two devices from the long job; one more ends the short one a minute earlier."""
    only = {"fast": 4}
    long, short = make_view(make_job(0, 2000, 4, totals=only), only), make_view(make_job(1, 60, 8, totals=only), {})
    usual = make_draft(long, short)
    hold_round(usual, {})
    chosen = choose_round(0.0, make_draft(long, short), {}, weighs=True)
    assert chosen.entries[JobId("j1")].rate > usual.entries[JobId("j1")].rate
    assert chosen.entries[JobId("j0")].mix


def test_a_guarantee_holds_in_every_round() -> None:
    owed = make_view(make_job(1, 100, 4, mixes=False, guaranteed=4), {})
    draft = make_draft(make_view(make_job(0, 500, 4), {"fast": 2}), owed, make_view(make_job(2, 50, 4), {"fast": 2}))
    for bias in list_biases(draft):
        tried = draft.fork()
        hold_round(tried, {}, bias)
        assert tried.entries[JobId("j1")].size >= 4
