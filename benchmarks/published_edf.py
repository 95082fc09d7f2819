"""EDF with the published rules and with ours, one rule changed at a time: where the difference comes from.

    python -m benchmarks.published_edf --data DIR

The published rules: rescaling is free, a job takes up to 64 devices even where fewer are faster, and a job that is late
anyhow keeps its place. With them this simulator meets the deadlines of the published code to the job, which says that
trace, speeds and clock agree; the other columns say what each rule is worth.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.elasticflow_data import add_data_option, load_trace, require_data
from springtide.core.decisions import Decision, JobView, Snapshot
from springtide.core.devices import parse_cluster
from springtide.core.jobs import JobId
from springtide.policies import Policy, decide
from springtide.policies.common.answers import answer_arrivals, remaining_views, smallest_share
from springtide.policies.common.urgency import in_time
from springtide.policies.edf import edf
from springtide.simulator.front import replay
from springtide.simulator.reports import ReplayRun

LARGEST = 64  # devices the published EDF gives at most


@dataclass(frozen=True, slots=True)
class Rules:
    """Whether shares beyond the throughput peak are used, and whether hopeless jobs go to the back."""

    beyond_peak: bool
    hopeless_last: bool

    def decide(self, now_s: float, snapshot: Snapshot) -> Decision:
        """Earliest deadline first by these rules."""
        answers = answer_arrivals(snapshot, smallest_share)
        free = snapshot.cluster.total
        shares: dict[JobId, int] = {}
        for view in sorted(remaining_views(snapshot, answers), key=partial(self.rank, now_s, free)):
            share = self.fit(view, free)
            if share != view.share:
                shares[view.job.id] = share
            free -= share
        return Decision(answers=answers, shares=shares)

    def rank(self, now_s: float, devices: int, view: JobView) -> tuple[bool, float, int]:
        """The place of a job."""
        hopeless = self.hopeless_last and not in_time(view, now_s, devices)
        return hopeless, view.job.deadline_s, view.job.index

    def fit(self, view: JobView, free: int) -> int:
        """The share a job takes of what is free."""
        curve = view.job.curve
        return curve.share_within(min(free, LARGEST)) if self.beyond_peak else curve.level_within(free)


COLUMNS: tuple[tuple[str, str, Policy], ...] = (
    ("published rules", "none", Rules(beyond_peak=True, hopeless_last=False).decide),
    ("rescaling charged", "elasticflow", Rules(beyond_peak=True, hopeless_last=False).decide),
    ("and up to the peak", "elasticflow", Rules(beyond_peak=False, hopeless_last=False).decide),
    ("and hopeless last", "elasticflow", Rules(beyond_peak=False, hopeless_last=True).decide),
    ("ours", "elasticflow", edf),
)
# (trace, cluster, deadlines met by the published code as measured by running it)
CASES = (
    ("elasticVpollux_e", "16x4:t4", 23),
    ("cluster10", "32x8:a100", 202),
    ("cluster01", "64x8:a100", 298),
    ("philly_103959", "32x8:a100", 382),
    ("philly_103959", "4x8:a100", 9),
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    data = require_data(parser.parse_args().data)
    print(f"{'deadlines met':28} {'published':>9} " + " ".join(f"{name:>18}" for name, _, _ in COLUMNS))
    for trace, cluster, published in CASES:
        counts = " ".join(f"{count:18}" for count in count_met(data, trace, cluster))
        print(f"{trace + ' ' + cluster:28} {published:9} {counts}", flush=True)


def count_met(data: Path, trace: str, cluster: str) -> Sequence[int]:
    """The deadlines met under each set of rules."""
    machines = parse_cluster(cluster)
    counts = []
    for name, overhead, policy in COLUMNS:
        jobs = load_trace(data, trace, machines, overhead).jobs
        counts.append(replay(ReplayRun(trace, name, jobs, machines), partial(decide, policy)).met)
    return counts


if __name__ == "__main__":
    main()
