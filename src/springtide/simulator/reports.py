"""Counts what happened in a run and sums it up as a report; the definitions are in docs/concepts/metrics.md.

A `MetricsObserver` does a constant amount of work per event. It judges nothing by itself: an answer is what the policy
said, a finish is what the engine saw.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import ceil, floor
from statistics import fmean, median

from springtide.core.decisions import Answer, JobView, Status
from springtide.core.devices import Cluster
from springtide.core.durations import show_span
from springtide.core.jobs import Job, JobId
from springtide.html_tables import show_table
from springtide.simulator.engine import Observer

TOLERANCE_S = 1e-6  # a finish this much after the deadline still meets it: rounding of sums of seconds


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """One run in numbers, named and ordered as in the JSON document; None where there is nothing to average."""

    trace: str
    policy: str
    jobs: int
    best_effort_jobs: int
    gpus: int
    admitted: int
    waitlisted: int
    declined: int
    finished: int
    met: int
    met_unpromised: int
    late_admitted: int
    dsr: float | None
    dsr_alone_bound: float | None
    median_answer_delay_s: float | None
    avg_jct_s: float | None
    p95_jct_s: float | None
    avg_jct_best_effort_s: float | None
    longest_wait_best_effort_s: float | None
    makespan_s: float
    gpu_utilization: float
    cluster_efficiency: float
    gpu_hours: float
    starts: int
    rescales: int
    migrations: int
    wall_s: float
    cpu_s: float

    def to_json(self) -> dict[str, object]:
        """The run as one entry of the JSON document."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """The run as a notebook shows it: what was kept of what, and how long jobs took."""
        deadlines = self.jobs - self.best_effort_jobs
        rows = [
            ("deadlines met", f"{self.met + self.met_unpromised} of {deadlines}" if deadlines else "none asked for"),
            ("promises broken", str(self.late_admitted)),
            ("admitted, declined", f"{self.admitted}, {self.declined}"),
            ("mean time to the end", "none" if self.avg_jct_s is None else show_span(self.avg_jct_s)),
            ("devices used", f"{self.gpu_utilization:.0%} of {self.gpus}"),
            ("rescales", str(self.rescales)),
        ]
        return show_table(f"{self.policy} on {self.trace}, {self.jobs} jobs", rows)


@dataclass(frozen=True, slots=True)
class Timing:
    """What a run cost: seconds on the wall, and of this process, compiling excluded."""

    wall_s: float
    cpu_s: float


@dataclass(slots=True)
class MetricsObserver(Observer):
    """An Observer that keeps running sums.

    `device_s` are the device-seconds held; `single_s` the seconds one device would need for the work done.
    """

    device_s: float = 0.0
    single_s: float = 0.0
    starts: int = 0
    rescales: int = 0
    migrations: int = 0
    longest_wait_best_effort_s: float | None = None
    submitted: dict[JobId, float] = field(default_factory=dict)
    admitted: set[JobId] = field(default_factory=set)
    waitlisted: set[JobId] = field(default_factory=set)
    declined: set[JobId] = field(default_factory=set)
    answer_delays_s: dict[JobId, float] = field(default_factory=dict)
    finishes_s: dict[JobId, float] = field(default_factory=dict)

    def arrived(self, job: Job, now_s: float) -> None:
        """Note when a job was submitted."""
        self.submitted[job.id] = job.submit_s

    def answered(self, job_id: JobId, answer: Answer, now_s: float) -> None:
        """Count an answer; the delay is that of the first final one."""
        status = answer.status
        if status is Status.WAITLISTED:
            self.waitlisted.add(job_id)
            return
        if status is Status.ADMITTED:
            self.admitted.add(job_id)
        elif status is Status.DECLINED:
            self.declined.add(job_id)
        if job_id not in self.answer_delays_s:
            self.answer_delays_s[job_id] = now_s - self.submitted[job_id]

    def reallocated(self, before: JobView, after: JobView, now_s: float) -> None:
        """Count a change of devices, and settle what was held before it."""
        if before.share:
            self._settle(before, now_s)
            if after.share == before.share:
                self.migrations += 1
            elif after.share:
                self.rescales += 1
        elif after.share:
            self.starts += 1

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        """Note a finish, settle what was held up to it, and how long a best-effort job has held nothing in all."""
        self._settle(last, now_s)
        self.finishes_s[last.job.id] = now_s
        if final.job.best_effort:
            waited_s = max(now_s - final.job.submit_s - final.ran_s, 0.0)
            self.longest_wait_best_effort_s = max(self.longest_wait_best_effort_s or 0.0, waited_s)

    def _settle(self, view: JobView, now_s: float) -> None:
        progress = view.progress
        self.device_s += view.share * (now_s - progress.since_s)
        done = progress.work_left - progress.work_left_at(now_s)
        self.single_s += done / single_rate(view.job)


def single_rate(job: Job) -> float:
    """T(1) of a job; where one device is not measured, the smallest share's speed per device."""
    return job.curve.rates[0] / job.curve.shares[0]


def meets(job: Job, finish_s: float) -> bool:
    """Whether a finish is in time for a job's deadline."""
    return finish_s <= job.deadline_s + TOLERANCE_S


def count_feasible_alone(jobs: Sequence[Job], cluster: Cluster) -> int:
    """How many deadline jobs would be in time with the whole cluster to themselves."""
    totals = cluster.totals
    return sum(not job.best_effort and meets(job, job.submit_s + job.alone_among_s(totals)) for job in jobs)


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """What a report is about: a trace's name and jobs, the policy that was tried, the cluster."""

    trace: str
    policy: str
    jobs: Sequence[Job]
    cluster: Cluster


def sum_up(run: ReplayRun, metrics: MetricsObserver, timing: Timing) -> SimulationReport:
    """The report of a finished run."""
    promised = [job for job in run.jobs if not job.best_effort]
    finishes = metrics.finishes_s
    in_time = [job for job in promised if job.id in finishes and meets(job, finishes[job.id])]
    met = sum(job.id in metrics.admitted for job in in_time)
    timed = promised or run.jobs  # a trace without deadlines has one kind of job
    jcts = sorted(finishes[job.id] - job.submit_s for job in timed if job.id in finishes)
    best_effort_jcts = [finishes[job.id] - job.submit_s for job in run.jobs if job.best_effort and job.id in finishes]
    makespan_s = max(finishes.values()) - run.jobs[0].submit_s if finishes else 0.0
    capacity_s = run.cluster.total * makespan_s
    delays = [metrics.answer_delays_s[job.id] for job in promised if job.id in metrics.answer_delays_s]
    return SimulationReport(
        trace=run.trace,
        policy=run.policy,
        jobs=len(run.jobs),
        best_effort_jobs=len(run.jobs) - len(promised),
        gpus=run.cluster.total,
        admitted=len(metrics.admitted),
        waitlisted=len(metrics.waitlisted),
        declined=len(metrics.declined),
        finished=len(finishes),
        met=met,
        met_unpromised=len(in_time) - met,
        late_admitted=sum(job.id in metrics.admitted for job in promised) - met,
        dsr=met / len(promised) if promised else None,
        dsr_alone_bound=count_feasible_alone(promised, run.cluster) / len(promised) if promised else None,
        median_answer_delay_s=median(delays) if delays else None,
        avg_jct_s=fmean(jcts) if jcts else None,
        p95_jct_s=find_percentile(jcts, 0.95) if jcts else None,
        avg_jct_best_effort_s=fmean(best_effort_jcts) if best_effort_jcts else None,
        longest_wait_best_effort_s=metrics.longest_wait_best_effort_s,
        makespan_s=makespan_s,
        gpu_utilization=metrics.device_s / capacity_s if capacity_s else 0.0,
        cluster_efficiency=metrics.single_s / capacity_s if capacity_s else 0.0,
        gpu_hours=metrics.device_s / 3600.0,
        starts=metrics.starts,
        rescales=metrics.rescales,
        migrations=metrics.migrations,
        wall_s=timing.wall_s,
        cpu_s=timing.cpu_s,
    )


def find_percentile(ordered: Sequence[float], fraction: float) -> float:
    """The value below which a fraction of the ascending values lie, interpolated between neighbours."""
    position = fraction * (len(ordered) - 1)
    low, high = ordered[floor(position)], ordered[ceil(position)]
    return low + (high - low) * (position - floor(position))
