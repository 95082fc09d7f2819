"""Simulated runs for figures: each (trace, policy) once, in a few processes, kept when finished, stopped when too long.

A `Scene` says where the jobs come from, so that a run can be repeated in any process and named in the cache. What a run
leaves is plain values: the simulator's own report and, if asked for, step functions over time.
"""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

from experiments.caches import Cache, digest_file, digest_files, make_key
from experiments.codes import digest_code
from springtide.core.decisions import Answer, Status
from springtide.core.devices import Cluster, parse_cluster
from springtide.core.jobs import JobId
from springtide.policies import POLICIES
from springtide.simulator.batches import mute_solvers
from springtide.simulator.front import simulate
from springtide.simulator.recordings import Recording, Steps
from springtide.simulator.scenarios import load_scenario
from springtide.simulator.traces import Trace, read_trace
from springtide.simulator.workloads import draw_trace, parse_workload
from springtide.throughput.overheads import parse_overhead
from springtide.throughput.tables.profiles import PACKAGED

LIMIT_S = 300.0
ENGINE = "experiments.simulations"

Tell = Callable[[str, float], None]  # (what is running, share of the figure's runs that is done)


@dataclass(frozen=True, slots=True)
class Scene:
    """Jobs of a file (or drawn, in the words of `simulate --synthetic`) on a cluster; `first` cuts after so many."""

    cluster: str
    path: Path | None = None
    synthetic: str = ""
    first: int | None = None
    profiles: Path | None = None
    overhead: str = "elasticflow"
    time_scale: float = 1.0
    last_of_duplicates: bool = False

    @property
    def name(self) -> str:
        """The trace in words."""
        return self.path.stem if self.path else "synthetic"


@dataclass(frozen=True, slots=True)
class Plan:
    """A run to be made; `record` keeps what is needed to draw it over time."""

    scene: Scene
    policy: str
    record: bool = False

    @property
    def name(self) -> str:
        """The run in words."""
        return f"{self.scene.name} {self.scene.cluster} {self.policy}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that was made: its report as in the simulator's JSON, or None where it was stopped at the limit."""

    plan: Plan
    report: dict[str, Any] | None
    steps: dict[str, Steps] = field(default_factory=dict)

    @property
    def dsr(self) -> float | None:
        """The share of deadlines met, promised or not: what the published counters count."""
        return None if self.report is None else count_met(self.report) / max(1, count_deadlines(self.report))


def count_met(report: dict[str, Any]) -> int:
    """Deadlines met, promised or not."""
    return int(report["met"] + report["met_unpromised"])


def count_deadlines(report: dict[str, Any]) -> int:
    """Jobs that have a deadline."""
    return int(report["jobs"] - report["best_effort_jobs"])


@dataclass(slots=True)
class Chronicle(Recording):
    """A recording that also counts the admitted jobs."""

    admitted: Steps = field(default_factory=list)

    def answered(self, job_id: JobId, answer: Answer, now_s: float) -> None:
        """Count an admission."""
        if answer.status is Status.ADMITTED:
            self.admitted.append((now_s, (self.admitted[-1][1] if self.admitted else 0) + 1))


class TooLong(Exception):
    """A run has reached its limit."""


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise TooLong in this thread, which must be a process's first, after so many seconds of CPU time.

    CPU time, because which runs are finished should not depend on what else the machine does.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@cache
def load_scene(scene: Scene) -> tuple[Trace, Cluster]:
    """The jobs and the cluster of a scene."""
    cluster = parse_cluster(scene.cluster)
    overhead = parse_overhead(scene.overhead, cluster.total)
    setting = load_scenario(cluster, scene.profiles, overhead, scene.time_scale)
    if scene.path is not None:
        trace = read_trace(scene.path, setting, last_of_duplicates=scene.last_of_duplicates)
    else:
        trace = draw_trace(parse_workload(scene.synthetic), setting)
    return (replace(trace, jobs=trace.jobs[: scene.first]) if scene.first else trace), cluster


def run_plan(plan: Plan, limit_s: float = LIMIT_S) -> dict[str, Any] | None:
    """What a run leaves as plain values, or None where it took longer than the limit."""
    chronicle = Chronicle()
    try:
        with mute_solvers(), limit_time(limit_s):
            trace, cluster = load_scene(plan.scene)
            report = simulate(trace, plan.policy, cluster, (chronicle,) if plan.record else ())
    except TooLong:
        return None
    names = ("held", "submitted", "admitted", "met") if plan.record else ()
    return {"report": report.to_json(), "steps": {name: getattr(chronicle, name) for name in names}}


def list_tables(scene: Scene) -> list[Path]:
    """The tables of speeds that a scene may read: those of its device types, else all that lie in its folder."""
    home = scene.profiles or PACKAGED
    kinds = [home / kind for kind in parse_cluster(scene.cluster).device_types]
    return [path for kind in kinds for path in kind.glob("*.csv")] or list(home.glob("*.csv"))


def make_plan_key(plan: Plan) -> str:
    """The key of a run: its inputs by content, and the code of the simulator and of its one policy."""
    scene = plan.scene
    content = digest_file(scene.path) if scene.path else scene.synthetic
    facts = asdict(replace(scene, path=None, profiles=None)) | {"policy": plan.policy, "record": plan.record}
    return make_key(
        [
            facts,
            content,
            digest_files(list_tables(scene)),
            digest_code(ENGINE, POLICIES[plan.policy].target.partition(":")[0]),
        ]
    )


def run_plans(plans: Sequence[Plan], cache: Cache, jobs: int, tell: Tell) -> list[Outcome]:
    """Every run in the order of the plans: kept ones from the cache, the others made in so many processes."""
    keys = {plan: make_plan_key(plan) for plan in plans}
    found = {plan: cache.find(key) for plan, key in keys.items()}
    missing = [plan for plan in found if found[plan] is None]
    for number, (plan, value) in enumerate(_make(missing, jobs), start=1):
        if value is not None:
            found[plan] = json.loads(json.dumps(value))
            cache.keep(keys[plan], found[plan])
        tell(plan.name, number / len(missing))
    return [_make_outcome(plan, found[plan]) for plan in plans]


def _make_outcome(plan: Plan, value: dict[str, Any] | None) -> Outcome:
    if value is None:
        return Outcome(plan, None)
    return Outcome(plan, value["report"], {name: [(a, b) for a, b in steps] for name, steps in value["steps"].items()})


def _make(plans: Sequence[Plan], jobs: int) -> Iterator[tuple[Plan, dict[str, Any] | None]]:
    if jobs <= 1 or len(plans) <= 1:
        for plan in plans:
            yield plan, run_plan(plan)
        return
    with ProcessPoolExecutor(min(jobs, len(plans)), mp_context=get_context("spawn"), initializer=_prepare) as pool:
        futures = {pool.submit(run_plan, plan): plan for plan in plans}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    """Let Ctrl-C end a worker at once and without a traceback of its own."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
