from dataclasses import replace

import numpy as np
import pytest
from benchmarks.scale import draw
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.policies.replays import JobSketch, Replay, build_jobs, run

from springtide.control.scheduling.live_world import LiveWorld
from springtide.core.decisions import Answer, Decision, JobView, Offer, Progress, Snapshot, Status
from springtide.core.devices import parse_cluster
from springtide.core.jobs import FREE, Job, JobId, Overhead
from springtide.policies import decide
from springtide.policies.planning import filling
from springtide.policies.planning.drafts import Draft
from springtide.policies.planning.open_answers import find_offers
from springtide.policies.planning.plan_table import new_table
from springtide.policies.springtide import FEW_WAIT, are_worth_replanning, refuse, springtide
from springtide.simulator.engine import Simulation
from springtide.simulator.front import simulate

PAUSE = Overhead(base_s=2.0)
STEEP = {1: 1.0, 2: 1.3, 4: 1.5}


def test_a_job_without_room_waits_holds_nothing_and_is_declined_with_offers() -> None:
    replay = run(springtide, [JobSketch(40, 0, deadline_s=10), JobSketch(20, 1, deadline_s=14)])
    (asked_s, waiting), (answered_s, refusal) = replay.told["b"]
    assert (asked_s, waiting.status, waiting.reason) == (1.0, Status.WAITLISTED, "no_room_yet")
    assert waiting.answer_by_s == 9.0  # 5 s alone before the deadline
    assert (answered_s, refusal.status, refusal.reason) == (9.0, Status.DECLINED, "no_room")
    assert "b" not in replay.changes
    later, less = refusal.offers
    assert [later.deadline_s, later.work] == pytest.approx([15.0, 20.0])
    assert [less.deadline_s, less.work] == pytest.approx([14.0, 16.0], rel=1e-4)


def test_the_time_of_the_answer_counts_the_cost_of_starting() -> None:
    overhead = Overhead(base_s=1.0, start_s=2.0)
    replay = run(springtide, [JobSketch(40, 0, deadline_s=10), JobSketch(20, 1, deadline_s=15, overhead=overhead)])
    assert replay.told["b"][0][1].answer_by_s == 15 - (1 + 2 + 5)


def test_a_waiting_job_is_admitted_as_soon_as_there_is_room() -> None:
    jobs = [JobSketch(40, 0, deadline_s=14, overhead=PAUSE), JobSketch(20, 1, deadline_s=20, overhead=PAUSE)]
    replay = run(springtide, jobs)  # the first is planned up to 14, but ends at 12 without using its reserve
    assert [(at_s, answer.status) for at_s, answer in replay.told["b"]] == [
        (1.0, Status.WAITLISTED),
        (12.0, Status.ADMITTED),
    ]
    assert replay.told["b"][0][1].answer_by_s == 13.0
    assert replay.changes["b"] == [(12.0, 4)]
    assert replay.finishes == {"a": 12.0, "b": 19.0}


def test_the_cheapest_waiting_job_is_tried_first() -> None:
    busy = JobSketch(40, 0, deadline_s=14, overhead=PAUSE)
    costly = JobSketch(20, 1, deadline_s=20, overhead=PAUSE)
    cheap = JobSketch(16, 2, deadline_s=19, overhead=PAUSE)
    replay = run(springtide, [busy, costly, cheap])
    assert replay.answers["c"].status is Status.ADMITTED
    assert replay.answers["b"].status is Status.DECLINED
    assert set(replay.finishes) == {"a", "c"}


def test_on_a_busy_cluster_a_job_is_promised_when_a_device_is_free_for_it() -> None:
    busy, costly, cheap = (
        JobSketch(40, 0, deadline_s=10),
        JobSketch(40, 1, deadline_s=25),
        JobSketch(20, 5, deadline_s=17),
    )
    replay = run(springtide, [busy, costly])
    assert [(at_s, answer.reason) for at_s, answer in replay.told["b"]] == [(1.0, "no_device_yet"), (10.0, "promised")]
    assert replay.told["b"][0][1].answer_by_s == 15.0
    pressed = run(springtide, [busy, costly, cheap, replace(cheap, submit_s=6, deadline_s=20)])
    assert set(pressed.finishes) == {"a", "c", "d"}  # for one costly job two cheap ones that came later


def test_while_little_is_promised_a_job_is_promised_at_once() -> None:
    replay = run(springtide, [JobSketch(40, 0, deadline_s=10), JobSketch(10, 1, deadline_s=400)])
    assert [(at_s, answer.status) for at_s, answer in replay.told["b"]] == [(1.0, Status.ADMITTED)]
    assert replay.changes["b"][0][0] == 10.0


def test_a_job_that_cannot_be_in_time_is_declined_at_once() -> None:
    replay = run(springtide, [JobSketch(40, 0, deadline_s=8)])
    [(at_s, answer)] = replay.told["a"]
    assert (at_s, answer.status, answer.reason) == (0.0, Status.DECLINED, "deadline_too_tight")
    later, less = answer.offers
    assert [later.deadline_s, later.work] == pytest.approx([10.0, 40.0])
    assert [less.deadline_s, less.work] == pytest.approx([8.0, 32.0], rel=1e-4)


def test_a_job_larger_than_the_cluster_is_declined_without_offers() -> None:
    replay = run(springtide, [JobSketch(4, 0, deadline_s=99, speeds={8: 1.0})])
    assert replay.answers["a"].reason == "exceeds_cluster"
    assert replay.answers["a"].offers == ()


def test_no_job_is_rescaled_for_less_than_its_cost() -> None:
    job = JobSketch(40, 0, deadline_s=400, speeds=STEEP, overhead=Overhead(base_s=9.0))
    other = JobSketch(30, 0, deadline_s=40, speeds={1: 1.0}, overhead=Overhead(base_s=9.0))
    replay = run(springtide, [other, other, other, job])
    # alone at 39 s with 10 steps left on 1 device; growing would save less than the pause
    assert replay.changes["d"] == [(0.0, 1)]


def test_best_effort_jobs_make_way_for_a_promise_and_come_back() -> None:
    replay = run(springtide, [JobSketch(40, 0), JobSketch(40, 0), JobSketch(40, 5, deadline_s=15)])
    assert replay.changes["a"] == [(0.0, 2), (5.0, 0), (15.0, 2)]
    assert replay.finishes["c"] == 15.0


def test_a_promised_job_that_grew_leaves_a_device_to_best_effort_work_but_not_what_it_needs() -> None:
    replay = run(springtide, [JobSketch(40, 0, deadline_s=50), JobSketch(40, 5)])
    assert replay.changes["a"][0] == (0.0, 4)
    assert replay.changes["b"][0][0] == 5.0
    assert replay.finishes["a"] <= 50.0
    pressed = run(springtide, [JobSketch(40, 0, deadline_s=10), JobSketch(40, 5)])
    assert pressed.changes["b"][0][0] == 10.0


def test_a_dear_job_runs_while_its_promise_waits_and_is_promised_in_the_end() -> None:
    cheap = [JobSketch(4, at_s, deadline_s=at_s + 20) for at_s in range(8)]
    replay = run(springtide, [*cheap, JobSketch(100, 8, deadline_s=50)])
    (asked_s, waiting), (promised_s, promised) = replay.told["i"]
    assert (asked_s, waiting.reason) == (8.0, "cheaper_jobs_likely")
    assert waiting.answer_by_s == 25.0  # 25 s alone before the deadline
    assert replay.first_start("i") == 8.0
    assert promised.promised and 8.0 < promised_s <= 25.0
    assert replay.finishes["i"] <= 50.0


def test_a_dear_job_that_runs_without_a_promise_makes_way_for_cheap_ones() -> None:
    cheap = [JobSketch(4, at_s, deadline_s=at_s + 20) for at_s in range(8)]
    late = [JobSketch(70, 10 + at_s, deadline_s=32 + at_s) for at_s in range(1)]
    replay = run(springtide, [*cheap, JobSketch(100, 8, deadline_s=36), *late])
    assert replay.first_start("i") == 8.0
    assert replay.answers["i"].status is Status.DECLINED
    assert replay.answers["j"].promised and replay.finishes["j"] <= 32.0
    assert replay.changes["i"][-1][1] == 0


def test_a_declined_job_leaves_its_devices_even_if_it_could_grow() -> None:
    [job] = build_jobs([JobSketch(40, 0, deadline_s=30)])
    table = new_table(0.0, LiveWorld(parse_cluster("1x4:cpu")).snapshot())
    row, draft = table.add(JobView(job, Progress(10.0, 2.0), Status.WAITLISTED, share=2)), Draft()
    refusal = refuse(table, draft, table.views[job.id])
    assert refusal.status is Status.DECLINED and [view.job for view in draft.refused] == [job]
    filling.grow(table.capacity, table.columns, np.array([row]), 4, 0.0, table.trial)
    assert filling.share_now(table.columns, row, 0.0) == 0 and table.columns.share[row] == 2


def test_offers_are_of_the_whole_job_whatever_it_has_done() -> None:
    [job] = build_jobs([JobSketch(40, 0, deadline_s=30)])
    table = new_table(0.0, LiveWorld(parse_cluster("1x4:cpu")).snapshot())
    view = JobView(job, Progress(10.0, 2.0), Status.WAITLISTED, share=2)
    later, less = find_offers(table, table.capacity, view)
    assert (later.work, less.deadline_s) == (40.0, 30.0)
    assert not table.rows


def resubmit(now_s: float, snapshot: Snapshot, decision: Decision, job: Job) -> Answer | None:
    """What a job is told if it comes right after a decision was carried out; None if others wait for an answer."""
    world = LiveWorld(snapshot.cluster)
    for view in snapshot.jobs.values():
        world.restore(view)
    memory = snapshot.memory if decision.memory is None else decision.memory
    world.apply(replace(decision, memory=dict(memory)), now_s)
    if any(view.status is Status.WAITLISTED for view in world.jobs.values()):
        return None
    world.arrive(job, now_s)
    return springtide(now_s, world.snapshot()).answers[job.id]


def accept_all_offers(jobs: list[Job], cluster: str) -> list[tuple[Offer, Answer]]:
    """The offers made in a run while nobody else waited, with the answer to a job that takes it up at that instant.

    Where others wait, what is planned for them is planned anew with the job; only an offer that is accepted is
    reserved (`policies/planning/reservations.py`).
    """
    taken = []

    def decide_and_accept(now_s: float, snapshot: Snapshot) -> Decision:
        decision = decide(springtide, now_s, snapshot)
        for job_id, answer in decision.answers.items():
            for offer in answer.offers:
                job = snapshot.jobs[job_id].job
                again = replace(
                    job, id=JobId("again"), index=99, submit_s=now_s, deadline_s=offer.deadline_s, work=offer.work
                )
                told = resubmit(now_s, snapshot, decision, again)
                if told is not None:
                    taken.append((offer, told))
        return decision

    Simulation(parse_cluster(cluster), decide_and_accept, Replay()).run(jobs)
    return taken


def has_room(answer: Answer) -> bool:
    """Whether a job was promised, or has a plan and will be, unless cheaper jobs come."""
    return answer.status is Status.ADMITTED or answer.reason in ("no_device_yet", "cheaper_jobs_likely")


@pytest.mark.parametrize("overhead", [FREE, PAUSE, Overhead(2.0, 2.0)])
def test_what_is_offered_has_room(overhead: Overhead) -> None:
    jobs = [
        JobSketch(40, 0, deadline_s=30, overhead=overhead),
        JobSketch(60, 1, deadline_s=35, overhead=overhead),
        JobSketch(60, 2, deadline_s=33, overhead=overhead),
        JobSketch(90, 2, deadline_s=12, overhead=overhead),
    ]
    taken = accept_all_offers(build_jobs(jobs), "1x4:cpu")
    assert taken
    assert all(has_room(answer) for _, answer in taken)


SPEEDS = ({1: 1.0, 2: 1.9, 4: 3.5}, {1: 1.0, 2: 1.3, 4: 1.4}, {1: 2.0, 2: 1.5, 4: 2.4})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.sampled_from((0.0, 0.0, 10.0, 60.0)),
            st.integers(20, 2000),
            st.sampled_from((0.3, 0.5, 0.8, 1.0, 1.5)),
            st.sampled_from(SPEEDS),
        ),
        min_size=4,
        max_size=10,
    ),
    st.sampled_from(("1x4:cpu", "2x4:cpu", "3x2:cpu")),
)
@example(  # the first grows in the decision that makes an offer to the third
    rows=[(60.0, 48, 1.5, SPEEDS[1]), (0.0, 20, 1.5, SPEEDS[2]), (10.0, 632, 0.8, SPEEDS[2])], cluster="1x4:cpu"
)
def test_every_offer_has_room_where_moves_cost_nothing(
    rows: list[tuple[float, int, float, dict[int, float]]], cluster: str
) -> None:
    sketches, submit_s = [], 0.0
    for gap_s, work, stretch, speeds in rows:
        submit_s += gap_s
        sketches.append(JobSketch(work, submit_s, 1, submit_s + stretch * work / speeds[1], speeds))
    for offer, answer in accept_all_offers(build_jobs(sketches), cluster):
        assert has_room(answer), f"offered {offer}, told {answer}"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from((0.0, 0.0, 5.0)), st.integers(20, 300), st.floats(0.4, 2.0)), min_size=2, max_size=9
    ),
    st.sampled_from((FREE, PAUSE)),
)
def test_every_waiting_job_is_answered_in_time_and_holds_nothing_once_declined(
    rows: list[tuple[float, int, float]], overhead: Overhead
) -> None:
    sketches, submit_s = [], 0.0
    for gap_s, work, stretch in rows:
        submit_s += gap_s
        sketches.append(JobSketch(work, submit_s, deadline_s=submit_s + stretch * work, overhead=overhead))
    replay = run(springtide, sketches)
    for job in build_jobs(sketches):
        last_s, answer = replay.told[job.id][-1]
        assert answer.status in (Status.ADMITTED, Status.DECLINED)
        assert last_s <= max(job.submit_s, job.deadline_s - job.alone_s())
        if answer.status is Status.DECLINED:
            assert all(at_s <= last_s for at_s, _ in replay.changes.get(job.id, []))
            assert replay.changes.get(job.id, [(last_s, 0)])[-1][1] == 0
        if answer.status is Status.ADMITTED:
            assert replay.finishes[job.id] <= job.deadline_s + 1e-6


@pytest.mark.parametrize(
    ("statuses", "answer_by_s", "is_worth"),
    [
        ([Status.WAITLISTED] * FEW_WAIT, 9.0, True),  # few enough
        ([Status.WAITLISTED] * (FEW_WAIT + 1), 9.0, False),
        ([Status.WAITLISTED] * (FEW_WAIT + 1), 1.0, True),  # they are answered now
        ([*[Status.WAITLISTED] * FEW_WAIT, Status.PENDING], 9.0, True),  # somebody has come
    ],
)
def test_where_many_wait_promised_jobs_make_way_only_for_whom_it_presses(
    statuses: list[Status], answer_by_s: float, is_worth: bool
) -> None:
    table = new_table(1.0, LiveWorld(parse_cluster("1x4:cpu")).snapshot())
    (job,) = build_jobs([JobSketch(10, deadline_s=20)])
    views = [JobView(job, Progress(10.0), status, answer_by_s=answer_by_s) for status in statuses]
    assert are_worth_replanning(table, views) is is_worth


def test_promises_are_kept_where_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nobody few enough, promised jobs are never planned again for those who only wait."""
    monkeypatch.setattr("springtide.policies.springtide.FEW_WAIT", 0)
    report = simulate(draw(600, 32, 0), "springtide", "4x8:a100")
    assert report.late_admitted == 0
    assert report.met > 0.8 * report.jobs
