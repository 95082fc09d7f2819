"""Nobody waits longer than the bound while promises leave its least share, also where the bold proposal is refused."""

from collections import Counter
from math import inf

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.policies.replays import JobSketch, build_jobs, check, run

from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.devices import count_devices, parse_cluster
from springtide.core.jobs import JobId, Overhead
from springtide.policies.planning import admission, best_effort
from springtide.policies.planning.drafts import Caution, Draft
from springtide.policies.planning.plan_table import PlanTable
from springtide.policies.planning.seats import AGAIN_S
from springtide.policies.springtide import springtide
from springtide.simulator.engine import Observer, Simulation

BOUND_S = 100.0  # what the tests take for three days
ONE, PAIR, GANG = {1: 1.0}, {2: 2.0}, {4: 4.0}
SPEEDS = (ONE, PAIR, GANG, {1: 1.0, 2: 1.9, 4: 3.5})
TEN = Overhead(base_s=10.0)


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that a short workload reaches."""
    monkeypatch.setattr(best_effort, "STARVED_S", BOUND_S)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Placement that never accepts the boldest proposal."""
    real = admission.conclude

    def conclude(table: PlanTable, snapshot: Snapshot, draft: Draft, caution: Caution) -> Decision | None:
        return None if caution is Caution.GROW else real(table, snapshot, draft, caution)

    monkeypatch.setattr(admission, "conclude", conclude)


def split_a_node(gang: JobSketch) -> list[JobSketch]:
    """Two promised jobs that cannot move keep the free devices of one node apart; five small jobs hold the rest."""
    tight = JobSketch(2000, 0, deadline_s=2010, speeds=ONE, overhead=TEN)
    between = JobSketch(20, 1, speeds=ONE, overhead=TEN)
    also_tight = JobSketch(2000, 2, deadline_s=2012, speeds=ONE, overhead=TEN)
    small = [JobSketch(5000, 3, speeds=ONE, overhead=TEN) for _ in range(5)]
    pair = JobSketch(20_000, 5, speeds=PAIR, overhead=TEN)
    return [tight, between, also_tight, *small, pair, gang]


def test_a_starved_gang_starts_although_another_job_cannot_be_placed() -> None:
    replay = run(springtide, split_a_node(JobSketch(40_000, 5, speeds=GANG, overhead=TEN)), "2x4:cpu")
    assert replay.first_start("j") == 5 + BOUND_S
    assert replay.finishes["a"] <= 2010 + 1e-6 and replay.finishes["c"] <= 2012 + 1e-6


def test_a_higher_priority_starts_although_another_job_cannot_be_placed() -> None:
    gang = JobSketch(40_000, BOUND_S + 50, speeds=GANG, overhead=TEN, priority=1)
    assert run(springtide, split_a_node(gang), "2x4:cpu").first_start("j") == BOUND_S + 50


def test_a_job_starts_at_the_very_instant_at_which_it_has_waited_long_enough() -> None:
    sketches = [JobSketch(5000, 0, speeds=ONE) for _ in range(4)]
    assert run(springtide, [*sketches, JobSketch(40_000, 5, speeds=GANG)]).first_start("e") == 5 + BOUND_S


@pytest.mark.parametrize("gap_s", [20, 45, 300])
def test_jobs_that_have_starved_do_not_take_turns_at_every_event(monkeypatch: pytest.MonkeyPatch, gap_s: int) -> None:
    """Each change costs a pause of 30 s: where events come as fast as that, nobody would ever get anything done."""
    monkeypatch.setattr(best_effort, "STARVED_S", 1000.0)
    pausing = [JobSketch(1500, at_s, speeds=ONE, overhead=Overhead(base_s=30.0)) for at_s in range(3)]
    too_large = [JobSketch(1, at_s, deadline_s=1e6, speeds=GANG) for at_s in range(3, 6000, gap_s)]
    replay = run(springtide, [*pausing, *too_large], "1x1:cpu")
    assert sum(len(replay.changes[name]) for name in "abc") <= 7
    assert max(replay.finishes.values()) < 5000


@pytest.mark.usefixtures("refused")
def test_a_job_that_runs_after_nearly_the_bound_is_left_to_run() -> None:
    sketches = [JobSketch(BOUND_S - 1e-3, 0, speeds=ONE, priority=1), JobSketch(50, 0, speeds=ONE)]
    assert run(springtide, sketches, "1x1:cpu", calls=40).finishes["b"] == pytest.approx(BOUND_S + 50 - 1e-3)


def test_who_was_left_out_of_a_seating_stays_so_in_more_cautious_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of eight starved jobs would make a promised one move: they are tried one by one a few times in all."""
    real, tries = admission.conclude, Counter[float]()

    def conclude(table: PlanTable, snapshot: Snapshot, draft: Draft, caution: Caution) -> Decision | None:
        tries[table.now_s] += snapshot.cache is None
        decision = real(table, snapshot, draft, caution)
        draft.pushing = frozenset(draft.urgent[:1])
        return decision if caution is Caution.ANYHOW else None

    monkeypatch.setattr(admission, "conclude", conclude)
    run(springtide, [JobSketch(300, 0, speeds=ONE) for _ in range(12)], "1x4:cpu")
    assert 10 < max(tries.values()) <= 20


Row = tuple[float, int, float, dict[int, float], int]  # gap, work, deadline in durations, speeds, priority
CALM = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
ANY = given(
    rows=st.lists(
        st.tuples(
            st.sampled_from((0.0, 0.0, 7.0, 40.0)),
            st.integers(5, 600),
            st.sampled_from((inf, inf, inf, 1.1, 3.0)),
            st.sampled_from(SPEEDS),
            st.sampled_from((0, 0, 0, 1, 2)),
        ),
        min_size=2,
        max_size=12,
    ),
    cluster=st.sampled_from(("1x5:cpu", "1x7:cpu", "3x3:cpu")),
)
WAITING_FOR_ANSWERS: list[Row] = [
    (0.0, 596, 3.0, SPEEDS[3], 0),
    (0.0, 488, 1.1, PAIR, 0),
    (0.0, 431, 1.1, GANG, 0),
    (0.0, 27, 3.0, PAIR, 0),
    (0.0, 428, inf, GANG, 0),
    (0.0, 513, 3.0, GANG, 0),
]


@pytest.mark.usefixtures("refused")
@CALM
@ANY
def test_who_has_waited_long_enough_goes_first(rows: list[Row], cluster: str) -> None:
    watch_bound(rows, cluster)


@CALM
@ANY
@example(rows=WAITING_FOR_ANSWERS, cluster="1x7:cpu")
def test_jobs_that_wait_for_an_answer_stop_for_who_has_waited_long_enough(rows: list[Row], cluster: str) -> None:
    watch_bound(rows, cluster)


def watch_bound(rows: list[Row], cluster: str) -> None:
    """Replay a workload with every decision looked at."""
    sketches, submit_s = [], 0.0
    for gap_s, work, stretch, speeds, priority in rows:
        submit_s += gap_s
        duration_s = work / next(iter(speeds.values()))
        deadline_s = submit_s + stretch * duration_s
        sketches.append(JobSketch(work, submit_s, 1, deadline_s, speeds, TEN, priority if deadline_s == inf else 0))
    jobs = build_jobs(sketches)
    watch = BoundWatch()
    watch.simulation = Simulation(parse_cluster(cluster), watch.decide, watch)
    watch.simulation.run(jobs)
    for job in jobs:
        if job.id in watch.promised:
            assert watch.finishes[job.id] <= job.deadline_s + 1e-6


class BoundWatch(Observer):
    """Checks each decision: whoever waits beyond the bound could not be given its least share, or gets it at once."""

    def __init__(self) -> None:
        self.promised: set[JobId] = set()
        self.finishes: dict[JobId, float] = {}
        self.calls = 0
        self.overdue: dict[JobId, float] = {}  # since when a job waits that could be seated
        self.simulation: Simulation

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        self.finishes[last.job.id] = now_s

    def decide(self, now_s: float, snapshot: Snapshot) -> Decision:
        """The policy's decision, looked at."""
        self.calls += 1
        assert self.calls <= 600, f"still not done at {now_s} s"
        decision = check(springtide, now_s, snapshot)
        self.promised |= {job_id for job_id, answer in decision.answers.items() if answer.promised}
        self._look(now_s, snapshot, decision)
        return decision

    def _look(self, now_s: float, snapshot: Snapshot, decision: Decision) -> None:
        allocations = decision.allocations
        held = {job_id: count_devices(allocations.get(job_id, view.devices)) for job_id, view in snapshot.jobs.items()}
        unpromised = [view for view in snapshot.jobs.values() if view.job.best_effort]
        before, self.overdue = self.overdue, {}
        for view in unpromised:
            if held[view.job.id] or best_effort.starves_at_s(view, now_s) > now_s:
                continue
            holding = [other for other in unpromised if held[other.job.id]]
            least = [other.job.curve.levels[0] for other in holding if goes_first(other, view, now_s)]
            least.append(view.job.curve.levels[0])
            most = max(mask.bit_count() for mask in snapshot.cluster.full_masks)
            if fit_blocks(list_free(snapshot, decision), least, most):
                self.overdue[view.job.id] = before.get(view.job.id, now_s)
        late = [name for name, since_s in before.items() if now_s > since_s + AGAIN_S + 1e-6]
        assert not late, f"{late} could have started at {before}, now it is {now_s} s"


def goes_first(other: JobView, view: JobView, now_s: float) -> bool:
    """Whether another job may hold devices while a starved one waits: more important, or starved nearly as long."""
    starved_s, as_long_s = best_effort.starves_at_s(other, now_s), best_effort.starves_at_s(view, now_s)
    if other.job.priority != view.job.priority:
        return other.job.priority > view.job.priority
    return starved_s <= now_s and starved_s - (BOUND_S if other.share else 0.0) <= as_long_s


def list_free(snapshot: Snapshot, decision: Decision) -> list[int]:
    """The devices of each node that promises leave."""
    masks = list(snapshot.cluster.full_masks)
    for job_id, view in snapshot.jobs.items():
        if view.promise is not None or job_id in decision.promises:
            for node, mask in decision.allocations.get(job_id, view.devices):
                masks[node] &= ~mask
    return masks


def fit_blocks(masks: list[int], shares: list[int], most: int) -> bool:
    """Whether so many devices are there for each, in one aligned piece of a node if nodes have so many at all."""
    if max(shares) > most:
        return sum(shares) <= sum(mask.bit_count() for mask in masks)
    for share in sorted(shares, reverse=True):
        block = (1 << share) - 1
        pieces = ((node, block << at) for node in range(len(masks)) for at in range(0, most, share))
        fitting = next(((node, piece) for node, piece in pieces if masks[node] & piece == piece), None)
        if fitting is None:
            return False
        masks[fitting[0]] &= ~fitting[1]
    return True
