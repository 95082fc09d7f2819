"""Promises said and kept: a trace replayed under errors and faults, and what became of the promises."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from statistics import fmean

from springtide.core.decisions import Answer, JobView
from springtide.core.devices import Cluster
from springtide.core.jobs import JobId
from springtide.policies import decide, find_policy
from springtide.simulator.engine import Observer
from springtide.simulator.front import pays_to_compile, warm_up
from springtide.simulator.reports import meets
from springtide.simulator.traces import Trace
from springtide.simulator.uncertainty import Uncertainty, run_uncertain


@dataclass(frozen=True, slots=True)
class UncertainReport:
    """A run under errors and faults in numbers, as in the JSON document; None where nothing was promised.

    `said` is the mean probability that the promises were made with, `kept` the share of them that was kept; `outcomes`
    are both for each promise: the probability, and whether it was kept.
    """

    trace: str
    policy: str
    jobs: int
    confidence: float
    promised: int
    broken: int
    said: float | None
    kept: float | None
    dsr: float | None
    failures: int
    outcomes: tuple[tuple[float, bool], ...] = ()

    def to_json(self) -> dict[str, object]:
        """The run as one entry of the JSON document, without each promise."""
        return {key: value for key, value in asdict(self).items() if key != "outcomes"}


@dataclass(slots=True)
class PromiseObserver(Observer):
    """An Observer that notes who was promised something, and when jobs ended."""

    promised: set[JobId] = field(default_factory=set)
    finishes_s: dict[JobId, float] = field(default_factory=dict)

    def answered(self, job_id: JobId, answer: Answer, now_s: float) -> None:
        """Note a promise."""
        if answer.promised:
            self.promised.add(job_id)

    def finished(self, last: JobView, final: JobView, now_s: float) -> None:
        """Note a finish."""
        self.finishes_s[last.job.id] = now_s


def replay_uncertain(trace: Trace, policy: str, cluster: Cluster, uncertain: Uncertainty) -> UncertainReport:
    """The report of a trace under a policy whose beliefs are not the facts."""
    entry = find_policy(policy)
    if pays_to_compile(trace.jobs):
        warm_up(entry)
    seen = PromiseObserver()
    run = run_uncertain(trace.jobs, cluster, partial(decide, entry), seen, uncertain)
    assert run.beliefs is not None
    due = [job for job in trace.jobs if not job.best_effort]
    met = {job.id for job in due if job.id in seen.finishes_s and meets(job, seen.finishes_s[job.id])}
    told = run.beliefs.said
    outcomes = tuple([(told[job.id], job.id in met) for job in due if job.id in seen.promised and job.id in told])
    said = [probability for probability, _ in outcomes]
    return UncertainReport(
        trace.name,
        entry.name,
        len(trace.jobs),
        uncertain.confidence,
        len(seen.promised),
        len(seen.promised - met),
        fmean(said) if said else None,
        len(seen.promised & met) / len(seen.promised) if seen.promised else None,
        len(met) / len(due) if due else None,
        run.beliefs.log.failures,
        outcomes,
    )


HEADINGS = ("trace", "policy", "confidence", "promised", "said", "kept", "broken", "deadlines met", "failures")


def show_reports(reports: Sequence[UncertainReport]) -> list[tuple[str, ...]]:
    """The lines of a table under HEADINGS."""
    return [
        (
            report.trace,
            report.policy,
            f"{report.confidence:g}",
            str(report.promised),
            _show(report.said),
            _show(report.kept),
            str(report.broken),
            _show(report.dsr),
            str(report.failures),
        )
        for report in reports
    ]


def _show(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}"
