"""Workloads at random against the policy: no promise is broken, and what it decides does not hang on its cache.

Small odd clusters on which room is hard to make, bursts, pauses, jobs with and without deadlines. Property tests try a
few dozen at each run; a broken promise was once in five hundred (decision 425).
"""

from collections import Counter
from math import inf
from random import Random

import pytest
from tests.adversary.nights import SEED, Record, count, report
from tests.policies.planning.test_admission import CLUSTERS, OVERHEADS, SPEEDS, Row, sketch_all
from tests.policies.replays import Replay, build_jobs, run

from springtide.core.decisions import Status
from springtide.policies.springtide import springtide

pytestmark = pytest.mark.adversary
GAPS_S = (0.0, 0.0, 0.0, 7.0, 40.0, 300.0)
DEADLINES = (0.4, 0.7, 1.0, 1.1, 1.5, 3.0, inf, inf)


def draw_row(random: Random) -> Row:
    work = random.choice((5, random.randint(5, 600), random.randint(5, 600)))
    speeds, overhead = random.choice(SPEEDS), random.choice(OVERHEADS)
    return random.choice(GAPS_S), work, random.choice(DEADLINES), speeds, overhead


def find_late(rows: list[Row], replay: Replay) -> list[str]:
    """The jobs that were promised an end and ended later."""
    admitted = [job for job in build_jobs(sketch_all(rows)) if replay.answers[job.id].status is Status.ADMITTED]
    return [job.id for job in admitted if replay.finishes[job.id] > job.deadline_s + 1e-6]


def test_no_promise_is_broken_on_any_of_many_workloads(record_property: Record) -> None:
    random, seen = Random(SEED), Counter[str]()
    for number in count(3000):
        cluster = random.choice(CLUSTERS)
        rows = [draw_row(random) for _ in range(random.randint(6, 16))]
        replay = run(springtide, sketch_all(rows), cluster)  # checks each decision, with the cache and without
        assert not find_late(rows, replay), f"workload {number} of seed {SEED} on {cluster}: {rows}"
        seen[f"met on {cluster}"] += 1
    report(record_property, "workloads", seen)
