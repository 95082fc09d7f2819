"""Promises on two types at once: only where one does not do, at level D2, kept to the second, and nobody lost by it."""

from dataclasses import dataclass, field, replace
from math import inf

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from springtide.core.curves import Curve
from springtide.core.decisions import Answer, Decision, JobView, Snapshot, Status
from springtide.core.devices import Cluster, parse_cluster
from springtide.core.jobs import FREE, Job, JobId, Overhead
from springtide.core.typed_curves import Mix
from springtide.policies import decide
from springtide.policies.pools.spanning import list_pairs
from springtide.policies.springtide import springtide
from springtide.simulator.engine import EventLoop
from springtide.throughput.blends import mix_curves

CLUSTER = parse_cluster("1x4:a100,1x4:t4")
LINEAR = Curve((1, 2, 4, 8), (1.0, 2.0, 4.0, 8.0))
FLAT = Curve((1, 2, 4, 8), (1.0, 1.8, 3.0, 4.5))
BOTH = ("a100", "t4")
TOLERANCE_S = 1e-6


def make_job(
    index: int,
    work: float,
    submit_s: float,
    deadline_s: float,
    *,
    device_types: tuple[str, ...] = BOTH,
    slowdown: float | None = 1.0,
    curve: Curve = LINEAR,
    overhead: Overhead = FREE,
    cluster: Cluster = CLUSTER,
) -> Job:
    """A job at half the speed on a T4; without a slowdown it is D1."""
    totals = {device_type: cluster.totals[device_type] for device_type in device_types}
    typed = mix_curves({"a100": curve, "t4": curve.scaled(0.5)}, totals, slowdown)
    return Job(JobId("abcdefghijkl"[index]), index, submit_s, work, curve, deadline_s, overhead=overhead, typed=typed)


@dataclass(slots=True)
class Diary:
    """Answers, mixes and finishes, and the jobs that were promised on two types."""

    cluster: Cluster
    answers: dict[str, Answer] = field(default_factory=dict)
    mixes: dict[str, list[tuple[float, Mix]]] = field(default_factory=dict)
    finishes: dict[str, float] = field(default_factory=dict)
    spanning: set[str] = field(default_factory=set)

    def arrived(self, job: Job, now_s: float) -> None: ...

    def answered(self, job_id: JobId, answer: Answer, now_s: float) -> None:
        self.answers[job_id] = answer

    def reallocated(self, before: JobView, after: JobView, now_s: float) -> None:
        self.mixes.setdefault(after.job.id, []).append((now_s, self.cluster.count_types(after.devices)))

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        self.finishes[last.job.id] = now_s

    def decide(self, now_s: float, snapshot: Snapshot) -> Decision:
        """The policy's decision, which must be the same without the cache."""
        decision = decide(springtide, now_s, snapshot)
        again = decide(springtide, now_s, replace(snapshot, cache=None))
        assert replace(decision, cache=None) == replace(again, cache=None)
        self.spanning |= {job_id for job_id, promise in decision.promises.items() if "+" in promise.device_type}
        return decision


def run(*jobs: Job, cluster: Cluster = CLUSTER) -> Diary:
    diary = Diary(cluster)
    EventLoop(cluster, diary.decide, diary).run(jobs)
    return diary


HALF = make_job(0, 40, 0, 20, device_types=("a100",))  # needs two A100 to the end


def test_a_job_that_needs_more_than_each_type_has_left_is_promised_on_both() -> None:
    # 60 steps in 18 s after the pause: 3.3 a second; two A100 and four T4 do 4
    diary = run(HALF, make_job(1, 60, 1, 21, overhead=Overhead(2.0)))
    assert diary.spanning == {"b"} and diary.answers["b"].status is Status.ADMITTED
    assert diary.mixes["b"] == [(1, {"a100": 2, "t4": 4})]
    assert diary.finishes["b"] == 18.0 and diary.finishes["a"] <= 20


def test_one_type_is_preferred_and_other_levels_never_mix() -> None:
    assert run(HALF, make_job(1, 30, 1, 21)).spanning == set()
    refused = run(HALF, make_job(1, 60, 1, 21, slowdown=None))
    assert refused.answers["b"].status is Status.DECLINED and "b" not in refused.mixes


def test_the_slowdown_of_mixed_kernels_counts() -> None:
    assert run(HALF, make_job(1, 60, 1, 21, slowdown=1.4)).answers["b"].status is Status.DECLINED


def test_the_smallest_block_that_is_in_time_is_taken() -> None:
    diary = run(HALF, make_job(1, 50, 1, 21.5))  # 2.5 a second; two A100 alone do 2
    assert diary.mixes["b"][0][1] == {"a100": 2, "t4": 1}


def test_later_promises_find_what_a_block_leaves() -> None:
    spanning = make_job(1, 60, 1, 21, overhead=Overhead(2.0))
    later = [make_job(2, 30, 2, 14, device_types=("t4",)), make_job(3, 8, 2, 30, device_types=("t4",))]
    diary = run(HALF, spanning, *later)
    assert diary.answers["c"].status is Status.DECLINED
    assert diary.answers["d"].status is Status.ADMITTED and diary.mixes["d"][0][0] >= diary.finishes["b"]


def test_only_blocks_faster_than_their_parts_are_tried() -> None:
    typed = make_job(0, 1, 0, 10, slowdown=2.6).typed
    assert typed is not None and list(list_pairs(typed, typed.types)) == []


def test_a_part_that_must_move_spends_the_reserve_of_the_whole_block() -> None:
    """e needs one whole node; b has no time to spare, so d moves its two A100 and pauses, its T4 with it."""
    cluster, only = parse_cluster("2x4:a100,1x4:t4"), ("a100",)
    pair, quad = Curve((2,), (2.0,)), Curve((4,), (4.0,))
    ending = [make_job(index, 10, 0, 5.5, device_types=only, curve=pair, cluster=cluster) for index in (0, 2)]
    tight = make_job(1, 80, 0, 40.6, device_types=only, curve=pair, overhead=Overhead(0.5), cluster=cluster)
    block = make_job(3, 90, 1, 26, overhead=Overhead(1.0), cluster=cluster)
    wide = make_job(4, 32, 7, 16, device_types=only, curve=quad, cluster=cluster)
    diary = run(ending[0], tight, ending[1], block, wide, cluster=cluster)
    assert all(answer.status is Status.ADMITTED for answer in diary.answers.values())
    assert diary.mixes["d"] == [(1, {"a100": 2, "t4": 4}), (7, {"a100": 2, "t4": 4})]
    assert (diary.finishes["d"], diary.finishes["e"], diary.finishes["b"]) == (25.5, 15.0, 40.5)


@st.composite
def draw_jobs(draw: st.DrawFn, cluster: Cluster) -> list[Job]:
    """Jobs that come close together with deadlines that one type hardly meets."""
    overhead = draw(st.sampled_from((FREE, Overhead(2.0, 1.0), Overhead(5.0, start_s=3.0))))
    row = st.tuples(
        st.integers(0, 6),
        st.integers(20, 200),
        st.sampled_from((0.6, 0.8, 1.0, 1.3, 2.0, inf)),
        st.sampled_from((1.0, 1.0, 1.2, None)),
        st.sampled_from((LINEAR, FLAT)),
        st.sampled_from((BOTH, BOTH, ("a100",), ("t4",))),
    )
    jobs, submit_s = [], 0.0
    for index, (gap_s, work, slack, slowdown, curve, device_types) in enumerate(
        draw(st.lists(row, min_size=2, max_size=10))
    ):
        submit_s += gap_s
        job = make_job(
            index,
            work,
            submit_s,
            inf,
            device_types=device_types,
            slowdown=slowdown,
            curve=curve,
            overhead=overhead,
            cluster=cluster,
        )
        jobs.append(replace(job, deadline_s=submit_s + slack * job.alone_s(4)))
    return jobs


def check(jobs: list[Job], cluster: Cluster) -> None:
    """No promise is broken, a block stays as it is to the end, and D1 jobs never mix."""
    diary = run(*jobs, cluster=cluster)
    event(f"{len(diary.spanning)} promises on two types")
    for job in jobs:
        mixes = [mix for _, mix in diary.mixes.get(job.id, ())]
        if diary.answers[job.id].status is Status.ADMITTED:
            assert diary.finishes[job.id] <= job.deadline_s + TOLERANCE_S
        if job.id in diary.spanning:
            assert len(mixes[0]) == 2 and all(mix == mixes[0] for mix in mixes)
        elif not job.best_effort:
            assert all(len(mix) <= 1 for mix in mixes)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(draw_jobs(CLUSTER))
def test_no_promise_is_broken_and_blocks_stay(jobs: list[Job]) -> None:
    check(jobs, CLUSTER)


NODES = parse_cluster("2x4:a100,4x2:t4")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(draw_jobs(NODES))
def test_the_same_on_several_nodes(jobs: list[Job]) -> None:
    check(jobs, NODES)
