"""A week of a serving cluster that lends its idle GPUs: how much elastic jobs make of them, and how fast they leave.

    python -m benchmarks.colocation --data DIR [--policy easyscale-heter] [--seed 0]

512 GPUs; serving demand 0.35 + 0.25 sin(day) + 5 % noise + two spikes a day to 0.9 at once; the jobs of cluster02, all
best effort, come faster and faster until the idle GPUs are used up. EasyScale reports +62.1 % in production.
"""

import argparse
from dataclasses import replace

from experiments.colocation import Borrowing, Serving, borrow

from benchmarks.elasticflow_data import add_data_option, load_trace, require_data
from springtide.core.devices import parse_cluster

CLUSTER = "64x8:a100"
FASTER = (1.0, 2.0, 4.0, 6.0)  # how much faster jobs come than in the trace
LENT_BAR, PUBLISHED = 0.90, "+62.1 %"


def main() -> None:
    """Print one line per arrival rate, up to the first that the idle GPUs cannot keep up with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    parser.add_argument("--policy", default="easyscale-heter")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    cluster, serving = parse_cluster(CLUSTER), Serving(seed=args.seed)
    trace = load_trace(require_data(args.data), "cluster02", cluster)
    print("arrivals   jobs  done  idle GPU-h  lent GPU-h   lent  reclaims  latest s  late  promises  used before/after")
    for faster in FASTER:
        outcome = borrow(trace, args.policy, cluster, replace(serving, faster=faster))
        print(show(faster, outcome), flush=True)
    print_verdict(outcome)


def show(faster: float, outcome: Borrowing) -> str:
    """One line of the table."""
    return (
        f"x{faster:<7g} {outcome.jobs:6d} {outcome.finished:5d} {outcome.idle_gpu_hours:11.0f} "
        f"{outcome.lent_gpu_hours:11.0f} {outcome.lent_share:6.1%} {outcome.reclaims:9d} "
        f"{outcome.latest_reclaim_s:9.1f} {outcome.late_reclaims:5d} {outcome.promises_on_borrowed:9d}  "
        f"{outcome.utilization_without:.1%} / {outcome.utilization_with:.1%}  (cpu {outcome.cpu_s:.0f} s)"
    )


def print_verdict(outcome: Borrowing) -> None:
    """The bars, for the most loaded week."""
    gain = outcome.utilization_with / outcome.utilization_without - 1.0
    verdict = "ok" if outcome.lent_share >= LENT_BAR else "BELOW"
    print(f"lent {outcome.lent_share:.1%} of the idle GPU-hours (bar {LENT_BAR:.0%}): {verdict}")
    print(f"latest reclaim {outcome.latest_reclaim_s:.1f} s, grace {outcome.grace_s:g} s, late {outcome.late_reclaims}")
    print(f"promises on borrowed GPUs: {outcome.promises_on_borrowed}")
    print(f"utilisation {gain:+.1%} by borrowing (EasyScale in production: {PUBLISHED})")


if __name__ == "__main__":
    main()
