"""`springtide` on several device types: promises inside one type, best effort over all, levels respected."""

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from springtide.core.curves import Curve
from springtide.core.decisions import Answer, Decision, JobView, Snapshot, Status
from springtide.core.devices import Cluster, parse_cluster
from springtide.core.jobs import FREE, Job, JobId, Overhead
from springtide.policies import decide
from springtide.policies.planning.best_effort import STARVED_S
from springtide.policies.springtide import springtide
from springtide.simulator.engine import Simulation
from springtide.throughput.blends import mix_curves

CLUSTER = parse_cluster("1x4:a100,1x4:t4")
LINEAR = Curve((1, 2, 4), (1.0, 2.0, 4.0))
FLAT = Curve((1, 2, 4), (1.0, 1.6, 2.2))
TOLERANCE_S = 1e-6


def make_job(
    index: int,
    work: float,
    submit_s: float = 0.0,
    deadline_s: float = inf,
    *,
    level: str = "D1",
    speed: float = 0.5,
    curve: Curve = LINEAR,
    overhead: Overhead = FREE,
    device_types: tuple[str, ...] = ("a100", "t4"),
) -> Job:
    """A job that a T4 runs at `speed` times an A100's."""
    speeds = {"a100": curve, "t4": curve.scaled(speed)}
    totals = {device_type: CLUSTER.totals[device_type] for device_type in device_types}
    typed = mix_curves(speeds, totals, 1.0 if level == "D2" else None)
    name = JobId(chr(ord("a") + index))
    return Job(name, index, submit_s, work, curve, deadline_s, overhead=overhead, typed=typed)


@dataclass(slots=True)
class Diary:
    """What happened, with every allocation checked against the levels."""

    cluster: Cluster
    answers: dict[str, Answer] = field(default_factory=dict)
    mixes: dict[str, list[tuple[float, dict[str, int]]]] = field(default_factory=dict)
    finishes: dict[str, float] = field(default_factory=dict)

    def arrived(self, job: Job, now_s: float) -> None: ...

    def answered(self, job_id: JobId, answer: Answer, now_s: float) -> None:
        self.answers[job_id] = answer

    def reallocated(self, before: JobView, after: JobView, now_s: float) -> None:
        mix = self.cluster.count_types(after.devices)
        seen = self.mixes.setdefault(after.job.id, [])
        typed = after.job.typed
        assert typed is not None
        if not typed.movable:
            device_types = {device_type for _, old in seen for device_type in old} | set(mix)
            assert len(device_types) <= 1, f"{after.job.id} is D1 and was on {device_types}"
        assert not mix or typed.rate(mix) > 0
        seen.append((now_s, mix))

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        self.finishes[last.job.id] = now_s


def decide_twice(now_s: float, snapshot: Snapshot) -> Decision:
    """The decision, which must be the same without the cache."""
    decision = decide(springtide, now_s, snapshot)
    again = decide(springtide, now_s, replace(snapshot, cache=None))
    assert replace(decision, cache=None) == replace(again, cache=None)
    assert decision.wake_at_s > now_s
    assert {promise.device_type for promise in decision.promises.values()} <= set(snapshot.cluster.device_types)
    return decision


def run(*jobs: Job, cluster: Cluster = CLUSTER, check: bool = True) -> Diary:
    """Replay jobs; the engine's World refuses devices that are taken, and mixes that a level forbids."""
    diary = Diary(cluster)
    Simulation(cluster, decide_twice if check else partial(decide, springtide), diary).run(jobs)
    return diary


def test_a_job_goes_where_it_is_fastest_and_the_next_where_there_is_room() -> None:
    diary = run(make_job(0, 40, deadline_s=11), make_job(1, 16, 1, 13))
    assert diary.mixes["a"][0][1] == {"a100": 4}
    assert diary.mixes["b"][0][1] == {"t4": 4}
    assert diary.finishes["a"] <= 11 and diary.finishes["b"] <= 13


def test_what_no_type_can_do_in_time_is_declined_with_the_best_offer_of_all_types() -> None:
    diary = run(make_job(0, 100, deadline_s=5))
    refusal = diary.answers["a"]
    assert (refusal.status, refusal.reason) == (Status.DECLINED, "deadline_too_tight")
    assert max(offer.work for offer in refusal.offers if offer.deadline_s == 5) == pytest.approx(20, rel=1e-3)


def test_a_job_waits_as_long_as_one_type_could_still_do_it() -> None:
    busy = [make_job(0, 40, deadline_s=10), make_job(1, 20, deadline_s=10, device_types=("t4",))]
    diary = run(*busy, make_job(2, 20, 1, 14))
    assert diary.answers["c"].status is Status.DECLINED
    assert "c" not in diary.mixes


def test_a_promised_job_that_has_not_started_makes_way_on_another_type() -> None:
    """b is planned on the A100 after a; c fits only there, and b fits the T4 as well."""
    first = make_job(0, 20, deadline_s=6, device_types=("a100",))
    second = make_job(1, 24, 1, 14.5)
    third = make_job(2, 20, 2, 10.5)
    diary = run(first, second, third)
    assert {name: answer.status for name, answer in diary.answers.items()} == dict.fromkeys("abc", Status.ADMITTED)
    assert diary.finishes["c"] <= 10.5 and diary.finishes["b"] <= 14.5
    assert (set(diary.mixes["b"][0][1]), set(diary.mixes["c"][0][1])) == ({"t4"}, {"a100"})


def test_best_effort_jobs_share_all_types_and_mix_where_their_level_allows() -> None:
    alone = run(make_job(0, 60, level="D2"))
    assert alone.mixes["a"][0][1] == {"a100": 4}  # its curve ends at four devices
    both = run(make_job(0, 60, level="D2"), make_job(1, 60))
    assert {device_type for name in "ab" for device_type in both.mixes[name][0][1]} == {"a100", "t4"}


def test_best_effort_work_yields_to_a_promise_and_comes_back() -> None:
    guest = make_job(0, 100)
    diary = run(guest, make_job(1, 20, 2, 8, device_types=("a100",)), make_job(2, 10, 2, 8, device_types=("t4",)))
    assert diary.finishes["b"] <= 8 and diary.finishes["c"] <= 8
    assert "a" in diary.finishes


def test_one_device_each_in_order_of_arrival_comes_first() -> None:
    diary = run(*(make_job(index, 1000 - index, level="D2") for index in range(8)))
    assert all(diary.mixes[name][0][0] == 0.0 for name in "abcdefgh")


@st.composite
def draw_jobs(draw: st.DrawFn) -> list[Job]:
    """Up to eight jobs of both levels that come close together, with pauses, some without a deadline."""
    overhead = draw(st.sampled_from((Overhead(), Overhead(2.0, 1.0), Overhead(5.0, start_s=3.0))))
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 12),
                st.integers(5, 300),
                st.sampled_from((0.6, 1.0, 1.3, 2.0, 4.0, inf)),
                st.sampled_from(("D1", "D2")),
                st.sampled_from((LINEAR, FLAT)),
                st.sampled_from((("a100", "t4"), ("t4",), ("a100",))),
            ),
            min_size=1,
            max_size=8,
        )
    )
    jobs, submit_s = [], 0.0
    for index, (gap_s, work, slack, level, curve, device_types) in enumerate(rows):
        submit_s += gap_s
        job = make_job(index, work, submit_s, level=level, curve=curve, overhead=overhead, device_types=device_types)
        jobs.append(replace(job, deadline_s=submit_s + slack * job.alone_s(4) if slack < inf else inf))
    return jobs


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(draw_jobs())
def test_no_promise_is_broken_whatever_comes(jobs: list[Job]) -> None:
    diary = run(*jobs)
    for job in jobs:
        answer = diary.answers[job.id]
        assert answer.status in (Status.ADMITTED, Status.DECLINED)
        if answer.status is Status.ADMITTED:
            assert diary.finishes[job.id] <= job.deadline_s + TOLERANCE_S
        else:
            assert not job.best_effort
            assert not diary.mixes.get(job.id, [(0.0, {})])[-1][1]  # what it held before its answer it has left


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(draw_jobs())
def test_three_types_of_unequal_nodes_hold_too(jobs: list[Job]) -> None:
    cluster = parse_cluster("1x4:a100,2x2:t4,1x3:t4")
    diary = run(*jobs, cluster=cluster, check=False)
    late = [job.id for job in jobs if diary.finishes.get(job.id, -inf) > job.deadline_s + TOLERANCE_S]
    assert not late


def test_of_several_users_the_one_who_has_used_less_starts_first() -> None:
    """Ann's twelve jobs fill all eight devices before Ben's comes; the first that comes free is his."""
    anns = [replace(make_job(index, 100.0 + index), user="ann") for index in range(12)]
    diary = run(*anns, replace(make_job(12, 10, 1), user="ben"))
    first_end_s = min(end_s for name, end_s in diary.finishes.items() if name != "m")
    assert diary.mixes["m"][0][0] == first_end_s
    alone = run(*[replace(job, user="ben") for job in anns], replace(make_job(12, 10, 1), user="ben"))
    assert alone.mixes["m"][0][0] > first_end_s, "of one user they start in order of arrival"


def test_nobody_waits_longer_than_three_days_on_several_types() -> None:
    jobs = [make_job(index, 1e6) for index in range(8)]
    diary = run(*jobs, make_job(8, 10, 1), check=False)
    assert diary.mixes["i"][0][0] == 1 + STARVED_S
    assert min(diary.finishes.values()) == diary.finishes["i"]


def test_those_who_have_starved_take_turns_on_several_types() -> None:
    """Eight jobs of 30 days run; eight others starve and take all devices; then the first starve once more."""
    jobs = [make_job(index, 30 * 86_400.0, submit_s=float(index // 8)) for index in range(16)]
    mixes = run(*jobs, check=False).mixes
    assert mixes["i"][0][0] == 1 + STARVED_S
    stopped_s, resumed_s = mixes["a"][1][0], mixes["a"][2][0]
    assert stopped_s == 1 + STARVED_S
    assert resumed_s == pytest.approx(3 * STARVED_S, abs=2.0)
    turns_s = [at_s for at_s, _ in mixes["a"]]
    assert min(later - earlier for earlier, later in pairwise(turns_s)) >= STARVED_S
