"""A serving cluster that lends its idle devices: how many it needs when, and what borrowing made of the rest.

Serving demand is drawn from a seed: a daily wave, noise, and spikes that come at once. Serving keeps to the first
devices and jobs to the others; a claimed device must be given back within a grace. Who borrows is a policy's decision,
and no promise may rest on it.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import inf, pi, sin
from random import Random
from time import process_time

from springtide.cli.outputs import print_rich
from springtide.core.decisions import JobView
from springtide.core.devices import Cluster, Devices
from springtide.core.jobs import Job
from springtide.errors import InputError, PolicyError
from springtide.policies import POLICIES, decide, find_policy
from springtide.simulator.engine import Lending, Observer, Simulation
from springtide.simulator.traces import Trace
from springtide.simulator.workloads import parse_options

DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Serving:
    """Serving demand as a share of all devices: mean + swing sin(day) + noise, and spikes a day to `peak` at once.

    EasyScale's production setting as this project's issue states it; it is sampled every `every_s` seconds (the period
    of an autoscaler), and a spike lasts `spike_s`.
    """

    days: float = 7.0
    seed: int = 0
    mean: float = 0.35
    swing: float = 0.25
    noise: float = 0.05
    spikes: int = 2
    peak: float = 0.9
    every_s: float = 300.0
    spike_s: float = 1800.0
    grace_s: float = 60.0
    faster: float = 1.0  # jobs come so many times faster than in their trace

    def __post_init__(self) -> None:
        rules = (
            (self.days > 0, "days", "positive"),
            (0 <= self.noise <= 1 and 0 <= self.mean <= 1 and 0 <= self.peak <= 1, "mean, noise and peak", "0 to 1"),
            (self.every_s > 0 and self.spike_s > 0, "every_s and spike_s", "positive"),
            (self.grace_s >= 0, "grace_s", "0 or more"),
            (self.faster > 0, "faster", "positive"),
        )
        for holds, key, rule in rules:
            if not holds:
                raise InputError(f"serving demand: {key} must be {rule}")

    @property
    def end_s(self) -> float:
        """When it ends."""
        return self.days * DAY_S


def parse_serving(text: str) -> Serving:
    """The serving demand that `days=7,seed=0,grace_s=60` names; what is left out stays at its default."""
    return Serving(**parse_options(text, Serving(), "colocation", InputError))


def yield_borrowed(jobs: Sequence[Job], faster: float) -> list[Job]:
    """The jobs as best-effort ones that come so many times faster, the first at 0."""
    first_s = jobs[0].submit_s
    return [replace(job, submit_s=(job.submit_s - first_s) / faster, deadline_s=inf) for job in jobs]


def draw_demand(serving: Serving, devices: int) -> list[tuple[float, int]]:
    """(since, devices that serving needs), ascending, from the seed."""
    random = Random(serving.seed)
    spikes = [
        day * DAY_S + random.uniform(0.0, DAY_S - serving.spike_s)
        for day in range(round(serving.days))
        for _ in range(serving.spikes)
    ]
    instants = {step * serving.every_s for step in range(int(serving.end_s // serving.every_s))}
    instants |= {edge for start_s in spikes for edge in (start_s, start_s + serving.spike_s)}
    demand = []
    for now_s in sorted(instants):
        wave = serving.mean + serving.swing * sin(2.0 * pi * now_s / DAY_S) + random.uniform(-1.0, 1.0) * serving.noise
        in_spike = any(start_s <= now_s < start_s + serving.spike_s for start_s in spikes)
        share = max(wave, serving.peak) if in_spike else wave
        demand.append((now_s, round(devices * min(max(share, 0.0), 1.0))))
    return demand


def lend_idle(cluster: Cluster, demand: Sequence[tuple[float, int]]) -> list[Lending]:
    """The devices that jobs may use: all but the first so many."""
    return [Lending(now_s, _mask_all_but(cluster, needed)) for now_s, needed in demand]


def _mask_all_but(cluster: Cluster, needed: int) -> tuple[int, ...]:
    masks = []
    for full in cluster.full_masks:
        taken = min(needed, full.bit_count())
        masks.append(full & ~((1 << taken) - 1))
        needed -= taken
    return tuple(masks)


@dataclass(frozen=True, slots=True)
class Borrowing:
    """What came of it: hours of idle and of borrowed devices, reclaims, and how busy the cluster was either way."""

    trace: str
    policy: str
    jobs: int
    finished: int
    idle_gpu_hours: float
    lent_gpu_hours: float
    lent_share: float
    reclaims: int
    latest_reclaim_s: float
    grace_s: float
    late_reclaims: int
    promises_on_borrowed: int
    utilization_without: float
    utilization_with: float
    rescales: int
    cpu_s: float

    def to_json(self) -> dict[str, object]:
        """The outcome as an entry of a JSON document."""
        return asdict(self)


@dataclass(slots=True)
class Meter(Observer):
    """An Observer that measures what jobs held and how long claimed devices took to come back.

    A device is back when its job has left it and, where it goes on elsewhere, its pause is over: until then its state
    is still being handed over.
    """

    lendings: Sequence[Lending]
    device_s: float = 0.0
    finished_jobs: int = 0
    rescales: int = 0
    promises: int = 0
    reclaims_s: list[float] = field(default_factory=list)

    def reallocated(self, before: JobView, after: JobView, now_s: float) -> None:
        """Settle what was held, and time the devices that had been claimed."""
        self.device_s += before.share * (now_s - before.progress.since_s)
        self.rescales += bool(before.share and after.share)
        self.promises += after.promise is not None and after.share > 0
        claimed_s = self._find_claim(before.devices, now_s)
        if claimed_s is not None:
            self.reclaims_s.append(now_s - claimed_s + before.job.overhead.pause_s(after.share or before.share))

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        """Settle what was held."""
        self.device_s += last.share * (now_s - last.progress.since_s)
        self.finished_jobs += 1

    def _find_claim(self, devices: Devices, now_s: float) -> float | None:
        """When some of these devices were claimed; None if they may still be used."""
        at = bisect_right(self.lendings, now_s, key=lambda lending: lending.at_s) - 1
        claimed_s = None
        while at >= 0 and any(mask & ~self.lendings[at].lent[node] for node, mask in devices):
            claimed_s = self.lendings[at].at_s
            at -= 1
        return claimed_s


def borrow(trace: Trace, policy: str, cluster: Cluster, serving: Serving) -> Borrowing:
    """Run jobs, all of them as best-effort ones, on what serving leaves idle; the policy must know of claims."""
    if not find_policy(policy).borrows:
        borrowers = ", ".join(entry.name for entry in POLICIES.values() if entry.borrows)
        raise PolicyError(f"policy {policy!r} does not give back what is claimed; these do: {borrowers}")
    jobs = yield_borrowed(trace.jobs, serving.faster)
    demand = draw_demand(serving, cluster.total)
    lendings = lend_idle(cluster, demand)
    meter = Meter(lendings)
    engine = Simulation(cluster, partial(decide, find_policy(policy)), meter, lendings, serving.grace_s)
    cpu_s = process_time()
    engine.run(jobs, serving.end_s)
    for view in engine.world.jobs.values():
        meter.device_s += view.share * (serving.end_s - view.progress.since_s)
    ends = [*(now_s for now_s, _ in demand[1:]), serving.end_s]
    served_s = sum(needed * (end_s - now_s) for (now_s, needed), end_s in zip(demand, ends, strict=True))
    whole_s = cluster.total * serving.end_s
    idle_s = whole_s - served_s
    return Borrowing(
        trace=trace.name,
        policy=policy,
        jobs=sum(job.submit_s <= serving.end_s for job in jobs),
        finished=meter.finished_jobs,
        idle_gpu_hours=idle_s / 3600.0,
        lent_gpu_hours=meter.device_s / 3600.0,
        lent_share=meter.device_s / idle_s,
        reclaims=len(meter.reclaims_s),
        latest_reclaim_s=max(meter.reclaims_s, default=0.0),
        grace_s=serving.grace_s,
        late_reclaims=sum(delay_s > serving.grace_s for delay_s in meter.reclaims_s),
        promises_on_borrowed=meter.promises,
        utilization_without=served_s / whole_s,
        utilization_with=(served_s + meter.device_s) / whole_s,
        rescales=meter.rescales,
        cpu_s=process_time() - cpu_s,
    )


def compare(text: str, traces: Sequence[Trace], policies: Sequence[str], cluster: Cluster) -> list[Borrowing]:
    """Every trace under every policy on what the serving demand that `text` names leaves idle."""
    serving = parse_serving(text)
    return [borrow(trace, policy, cluster, serving) for trace in traces for policy in policies]


def print_borrowings(outcomes: list[Borrowing]) -> None:
    """One line per run."""
    from rich.table import Table

    table = Table("trace", "policy", box=None, header_style="bold", pad_edge=False)
    for heading in ("jobs", "finished", "idle GPU-h", "lent", "reclaims", "latest", "late", "promises", "used"):
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(
            outcome.trace,
            outcome.policy,
            str(outcome.jobs),
            str(outcome.finished),
            f"{outcome.idle_gpu_hours:.0f}",
            f"{outcome.lent_share:.1%}",
            str(outcome.reclaims),
            f"{outcome.latest_reclaim_s:.0f} of {outcome.grace_s:g} s",
            str(outcome.late_reclaims),
            str(outcome.promises_on_borrowed),
            f"{outcome.utilization_without:.1%} to {outcome.utilization_with:.1%}",
        )
    print_rich(table, 140)
