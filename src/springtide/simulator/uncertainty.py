"""What is so and what a policy believes: speeds and work stated wrong, machines that fail, and what is learned.

Facts are drawn once from a seed: job j runs at stated speed x exp(N(0, speed_error)) and needs stated work x exp(N(0,
steps_error)). A policy plans with beliefs: the slow end of that distribution, so that a plan that holds for it holds
with probability `confidence`; once a job has run for a minute where it is, what was measured there. Of work it knows
what was stated, and that a job which has done all of it and still runs needs a little more. Nodes fail by themselves
and come back (exponential times); their jobs fall back to the last checkpoint. How often that has happened so far, and
how often jobs were far slower than their error explains, and the reserves both call for, is counted from what was seen,
never from the rates that are drawn from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import heapify, heappop, heappush
from math import exp, inf, isclose, log, sqrt
from random import Random
from statistics import NormalDist
from typing import NamedTuple

from springtide.core.decisions import Decide, Decision, JobView, Progress, Promise, Snapshot
from springtide.core.devices import Cluster, NodeGroup
from springtide.core.jobs import Job, JobId
from springtide.errors import InputError
from springtide.placement.type_pools import Pool
from springtide.simulator.engine import Observer, Simulation
from springtide.simulator.workloads import parse_options
from springtide.throughput.fault_chances import NO_RESERVE, FaultReserve, find_chance

HOUR_S = 3600.0
LEARNED_S = 60.0  # of steps: then a job's speed has been measured
OVERRUN = 0.02  # of its stated work: what a job is believed to need that has done all of it
STRAGGLING = 3.0  # standard deviations of the stated speeds by which a job is slower that sits on a slow node
LONGEST_S = 5 * 365 * 86400.0  # after which nothing fails any more: a run must end


@dataclass(frozen=True, slots=True)
class Faults:
    """How machines fail: hours between failures of a node and of a device, hours until it is back, slow nodes.

    A failed device takes its node out until it is repaired. `slow` of the nodes run at `slow_speed` all the time. A job
    checkpoints every `checkpoint_s`.
    """

    mtbf: float = inf
    device_mtbf: float = inf
    mttr: float = 1.0
    slow: float = 0.0
    slow_speed: float = 0.7
    checkpoint_s: float = 600.0

    def __post_init__(self) -> None:
        rules = (
            (self.mtbf > 0, "mtbf", "positive hours"),
            (self.device_mtbf > 0, "device_mtbf", "positive hours"),
            (self.mttr > 0, "mttr", "positive hours"),
            (0 <= self.slow <= 1, "slow", "a share of the nodes between 0 and 1"),
            (0 < self.slow_speed <= 1, "slow_speed", "above 0 and at most 1"),
            (self.checkpoint_s > 0, "checkpoint_s", "positive seconds"),
        )
        for holds, key, rule in rules:
            if not holds:
                raise InputError(f"faults: {key}={getattr(self, key)} must be {rule}")

    def node_rate(self, devices: int) -> float:
        """Failures per second of a node with so many devices."""
        return (1.0 / self.mtbf + devices / self.device_mtbf) / HOUR_S


NO_FAULTS = Faults()


def parse_faults(text: str) -> Faults:
    """The faults that `mtbf=100,mttr=1` names; what is left out does not happen."""
    return Faults(**parse_options(text, NO_FAULTS, "faults", InputError))


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """How wrong what is stated may be (standard deviations of logarithms), what fails, how sure promises are to be."""

    speed_error: float = 0.0
    steps_error: float = 0.0
    faults: Faults = NO_FAULTS
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("speed_error", "steps_error"):
            if not 0 <= getattr(self, key) <= 2:
                raise InputError(f"{key} {getattr(self, key)} must be between 0 and 2; 0.05 is about 5 %")
        if not 0.5 <= self.confidence < 1:
            raise InputError(f"confidence {self.confidence} must be at least 0.5 and below 1, as 0.95")

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm of a job's time."""
        return sqrt(self.speed_error**2 + self.steps_error**2)

    def expect(self, stated: Job) -> Job:
        """A job as slow and as long as it is not with the wanted confidence.

        The reserve of z standard deviations is shared by speed and work in proportion to their variances.
        """
        if not self.spread:
            return stated
        reserve = NormalDist().inv_cdf(self.confidence) / self.spread
        curve = stated.curve.scaled(exp(-reserve * self.speed_error**2))
        return replace(stated, curve=curve, work=stated.work * exp(reserve * self.steps_error**2))


def draw_facts(jobs: Sequence[Job], uncertain: Uncertainty) -> list[Job]:
    """The jobs as they are: each takes the same two draws whatever the errors are."""
    random = Random(f"facts {uncertain.seed}")
    facts = []
    for job in jobs:
        if job.typed is not None:
            raise InputError(f"job {job.id} has speeds by device type; errors and faults need a cluster of one type")
        speed, work = (random.gauss(0.0, 1.0) for _ in range(2))
        curve = job.curve.scaled(exp(uncertain.speed_error * speed)) if uncertain.speed_error else job.curve
        facts.append(replace(job, curve=curve, work=job.work * exp(uncertain.steps_error * work)))
    return facts


@cache
def quantile_poisson(mean: float, confidence: float) -> int:
    """The smallest number that so many events do not exceed with this probability."""
    return next((number for number in range(1000) if sum_poisson(mean, number) >= confidence), 1000)


@cache
def sum_poisson(mean: float, most: int) -> float:
    """The probability of at most so many events."""
    chance = total = exp(-mean)
    for number in range(1, most + 1):
        chance *= mean / number
        total += chance
    return min(total, 1.0)


@dataclass(slots=True)
class FaultLog:
    """The faults seen so far: node-seconds watched, and failures.

    Until a first failure was seen none is expected; from then on half a failure more is counted than was seen.
    """

    node_s: float = 0.0
    failures: int = 0

    @property
    def rate(self) -> float:
        """Failures per node-second."""
        return (self.failures + 0.5) / self.node_s if self.failures else 0.0


@dataclass(slots=True)
class SpeedLog:
    """What was seen of slow nodes so far: places on which a job was measured, those too slow for its error, how slow.

    A first place counts as fast beforehand.
    """

    places: int = 1
    slow: int = 0
    lost: float = 0.0  # sum of the logarithms of how many times slower those were

    def note(self, factor: float, error: float) -> None:
        """Count a place on which a job had this part of its stated speed."""
        self.places += 1
        if factor < exp(-STRAGGLING * error) * (1.0 - 1e-6):
            self.slow += 1
            self.lost -= log(factor)

    @property
    def share(self) -> float:
        """The part of the places that are slow."""
        return self.slow / self.places

    @property
    def factor(self) -> float:
        """The speed there, as a part of the stated one."""
        return round(exp(-self.lost / self.slow), 3) if self.slow else 1.0

    def planned(self, confidence: float) -> float:
        """The part of its speed that a job has with the wanted confidence."""
        return self.factor if self.share > 1.0 - confidence else 1.0


class Basis(NamedTuple):
    """What a belief rests on: the job without its reserve for faults, the faults seen, the speed on slow nodes."""

    job: Job
    failures: int
    planned: float


@dataclass(slots=True)
class Beliefs:
    """A policy behind a veil: it sees jobs as they are believed to be, and only the nodes that work."""

    decide: Decide
    stated: Mapping[JobId, Job]
    cluster: Cluster
    uncertain: Uncertainty
    log: FaultLog = field(default_factory=FaultLog)
    down: set[int] = field(default_factory=set)
    said: dict[JobId, float] = field(default_factory=dict)  # the probability that each promise was made with
    speeds: SpeedLog = field(default_factory=SpeedLog)
    _known: dict[JobId, Job] = field(default_factory=dict)
    _bases: dict[JobId, Basis] = field(default_factory=dict)
    _learned: dict[JobId, tuple[float, float]] = field(default_factory=dict)  # since when it is there, and how fast
    _reserves: dict[JobId, FaultReserve] = field(default_factory=dict)

    def __call__(self, now_s: float, snapshot: Snapshot) -> Decision:
        """What the policy decides on what it believes, with devices as they are numbered in truth."""
        pool = self._find_pool()
        changed = self._learn(now_s, snapshot) | self._renew(snapshot) | bool(self.down)
        views = {job_id: self._believe(now_s, view, pool) for job_id, view in snapshot.jobs.items()}
        believed = replace(
            snapshot,
            cluster=pool.cluster,
            jobs=views,
            free_masks=tuple(snapshot.free_masks[node] for node in pool.nodes),
            cache=None if changed else snapshot.cache,
        )
        decision = self.decide(now_s, believed)
        for job_id, answer in decision.answers.items():
            if answer.promised and job_id in decision.promises:
                self.said[job_id] = self._judge(now_s, snapshot.jobs[job_id], decision.promises[job_id])
        allocations = {job_id: pool.widen(devices) for job_id, devices in decision.allocations.items()}
        return replace(decision, allocations=allocations)

    def _judge(self, now_s: float, view: JobView, promise: Promise) -> float:
        """The probability that a promise is kept: its plan may take longer by what is left to the deadline.

        Where a job that was measured holds devices, it is known whether they are slow. What it waits for its first
        devices does not grow with what it takes on them.
        """
        uncertain, plan, job_id = self.uncertain, promise.plan, view.job.id
        begins_s = next((max(part.start_s, now_s) for part in plan.segments if part.share), now_s)
        planned_s = plan.finish_s - begins_s
        if planned_s <= 0:
            return 1.0
        room = (promise.deadline_s - begins_s) / planned_s
        reserve = self._reserves.get(job_id, NO_RESERVE)
        slow, planned = self.speeds, self._bases[job_id].planned
        spread = uncertain.steps_error if job_id in self._learned else uncertain.spread
        fast = find_chance(room / planned, reserve, spread, uncertain.confidence)
        if not slow.share or (job_id in self._learned and view.share):
            return fast
        late = find_chance(room * slow.factor / planned, reserve, spread, uncertain.confidence)
        return fast + slow.share * (late - fast)

    def _find_pool(self) -> Pool:
        """The nodes that work, as a cluster of their own."""
        nodes = tuple(node for node in range(len(self.cluster.full_masks)) if node not in self.down)
        group = self.cluster.groups[0]
        return Pool(group.device_type, nodes, _make_cluster(len(nodes), group, self.cluster.nodes_per_rack))

    def _learn(self, now_s: float, snapshot: Snapshot) -> bool:
        """Note the speeds that have shown where jobs are now; whether one is another than was known."""
        changed = False
        for job_id, view in snapshot.jobs.items():
            progress = view.progress
            begun_s = max(progress.since_s, progress.paused_until_s)
            measured_s, known = self._learned.get(job_id, (-inf, 0.0))
            if not view.share or now_s - begun_s < LEARNED_S or measured_s == begun_s:
                continue
            stated = self.stated[job_id]
            factor = progress.rate / stated.curve.rate(view.share)
            self._learned[job_id] = begun_s, factor
            self.speeds.note(factor, self.uncertain.speed_error)
            if not isclose(factor, known, rel_tol=1e-9):
                measured = replace(stated, curve=stated.curve.scaled(factor))
                learnt = replace(self.uncertain, speed_error=0.0).expect(measured)
                if view.promise is None:
                    self._rest_on(learnt, 1.0)
                else:
                    self._keep_reserve(learnt)
                changed = True
        return changed

    def _renew(self, snapshot: Snapshot) -> bool:
        """Let jobs that are promised nothing yet have the reserves of what was seen since; whether one changes."""
        changed, seen = False, (self.log.failures, self.speeds.planned(self.uncertain.confidence))
        for job_id, view in snapshot.jobs.items():
            basis = self._bases.get(job_id)
            if basis is None:
                self._expect(job_id)
            elif view.promise is None and basis[1:] != (seen if job_id not in self._learned else (seen[0], 1.0)):
                changed = True
                if job_id in self._learned:
                    self._rest_on(basis.job, 1.0)
                else:
                    self._expect(job_id)
        return changed

    def _expect(self, job_id: JobId) -> None:
        """Believe of a job that has not run what is had of it with the wanted confidence."""
        planned = self.speeds.planned(self.uncertain.confidence)
        job = self.uncertain.expect(self.stated[job_id])
        self._rest_on(job if planned == 1.0 else replace(job, curve=job.curve.scaled(planned)), planned)

    def _rest_on(self, job: Job, planned: float) -> None:
        """Believe this of a job, with the reserve for faults that was seen to be needed up to now."""
        self._bases[job.id] = Basis(job, self.log.failures, planned)
        self._known[job.id] = self._reserve(job)

    def _keep_reserve(self, job: Job) -> None:
        """Believe this of a promised job, with the part of its work in reserve that its promise was made with."""
        self._bases[job.id] = self._bases[job.id]._replace(job=job, planned=1.0)
        self._known[job.id] = replace(job, work=job.work / (1.0 - self._reserves[job.id].reserved))

    def _believe(self, now_s: float, view: JobView, pool: Pool) -> JobView:
        job = self._known[view.job.id]
        done = view.job.work - view.progress.work_left_at(now_s)
        left = max(job.work - done, OVERRUN * job.work)
        rate = job.curve.rate(view.share) if view.share else 0.0
        paused_until_s = max(now_s, view.progress.paused_until_s) if view.share else now_s
        served, ran_s = view.used_at(now_s)
        return replace(
            view,
            job=job,
            progress=Progress(left, rate, now_s, paused_until_s),
            devices=pool.narrow(view.devices),
            served=served,
            ran_s=ran_s,
        )

    def _reserve(self, job: Job) -> Job:
        """A job with the work that the faults it will meet undo, as far as faults were seen."""
        share = job.requested if job.requested in job.curve.shares else job.curve.shares[0]
        rate = job.curve.rate(share)
        nodes = max(1, share // self.cluster.groups[0].devices_per_node)
        expected = round(self.log.rate * nodes * job.work / rate, 4)
        faults = quantile_poisson(expected, self.uncertain.confidence)
        checkpoint_s, pause_s = self.uncertain.faults.checkpoint_s, job.overhead.pause_s(share, starting=True)
        reserved = faults * (checkpoint_s + pause_s) * rate
        work = job.work + reserved
        undone = (checkpoint_s / 2 + pause_s) * rate
        self._reserves[job.id] = FaultReserve(expected, reserved / work, undone / work)
        return replace(job, work=work)


@cache
def _make_cluster(nodes: int, group: NodeGroup, nodes_per_rack: int) -> Cluster:
    return Cluster((NodeGroup(nodes, group.devices_per_node, group.device_type),), nodes_per_rack)


@dataclass(slots=True)
class FaultySimulation(Simulation):
    """A run in which nodes fail and come back: their jobs lose all devices at once, and the work since a checkpoint."""

    beliefs: Beliefs | None = None
    coming: list[tuple[float, int, bool]] = field(init=False, default_factory=list)  # (when, node, whether it fails)
    slow: frozenset[int] = field(init=False, default=frozenset())
    random: Random = field(init=False, default_factory=Random)
    watched_s: float = field(init=False, default=0.0)

    def start(self, uncertain: Uncertainty) -> None:
        """Draw the first failure of each node, and which nodes are slow."""
        self.random = Random(f"faults {uncertain.seed}")
        nodes = range(len(self.cluster.full_masks))
        self.slow = frozenset(node for node in nodes if self.random.random() < uncertain.faults.slow)
        for node in nodes:
            self._plan_failure(0.0, node)
        heapify(self.coming)

    @property
    def _faults(self) -> Faults:
        assert self.beliefs is not None
        return self.beliefs.uncertain.faults

    def _plan_failure(self, now_s: float, node: int) -> None:
        rate = self._faults.node_rate(self.cluster.full_masks[node].bit_count())
        if rate > 0 and now_s < LONGEST_S:
            heappush(self.coming, (now_s + self.random.expovariate(rate), node, True))

    def _next_claim_s(self) -> float:
        return self.coming[0][0] if self.coming and self.world.jobs else inf

    def _change_capacity(self) -> None:
        assert self.beliefs is not None
        down = self.beliefs.down
        up = len(self.cluster.full_masks) - len(down)
        self.beliefs.log.node_s += up * max(self.now_s - self.watched_s, 0.0)
        self.watched_s = self.now_s
        before = set(down)
        while self.coming and self.coming[0][0] <= self.now_s:
            at_s, node, fails = heappop(self.coming)
            if not fails:
                down.discard(node)
                self._plan_failure(at_s, node)
            elif len(down) + 1 < len(self.cluster.full_masks):
                down.add(node)
                self.beliefs.log.failures += 1
                heappush(self.coming, (at_s + self.random.expovariate(1.0 / (self._faults.mttr * HOUR_S)), node, False))
            else:  # the last node that works does not fail
                self._plan_failure(at_s, node)
        if down != before:
            masks = self.cluster.full_masks
            hit = [view for view in self.world.jobs.values() if any(node in down for node, _ in view.devices)]
            self.world.lend(tuple(0 if node in down else mask for node, mask in enumerate(masks)))
            if self.world.leaving:
                self._put_off()
            for view in hit:
                self._fall_back(view)

    def _fall_back(self, view: JobView) -> None:
        """Undo the work since a job's last checkpoint; its devices are already gone."""
        ran_s = self.now_s - max(view.progress.since_s, view.progress.paused_until_s)
        undone_s = min(max(ran_s, 0.0), self.random.uniform(0.0, self._faults.checkpoint_s))
        now = self.world.jobs[view.job.id]
        left = min(now.progress.work_left + undone_s * view.progress.rate, now.job.work)
        self.world.observe(view.job.id, Progress(left, 0.0, self.now_s, self.now_s), self.now_s)

    def _expect_finish(self, view: JobView) -> None:
        if self.slow and any(node in self.slow for node, _ in view.devices):
            progress = replace(view.progress, rate=view.progress.rate * self._faults.slow_speed)
            self.world.observe(view.job.id, progress, self.now_s)
            view = self.world.jobs[view.job.id]
        Simulation._expect_finish(self, view)


def run_uncertain(
    jobs: Sequence[Job], cluster: Cluster, decide: Decide, observer: Observer, uncertain: Uncertainty
) -> FaultySimulation:
    """Replay jobs under a policy that believes what was stated while the facts are others; returns the ended run."""
    if len(cluster.groups) > 1:
        raise InputError(f"errors and faults need a cluster of one group of nodes; {cluster.describe()} has several")
    facts = draw_facts(jobs, uncertain)
    beliefs = Beliefs(decide, {job.id: job for job in jobs}, cluster, uncertain)
    engine = FaultySimulation(cluster, beliefs, observer, beliefs=beliefs)
    engine.start(uncertain)
    engine.run(facts)
    return engine
