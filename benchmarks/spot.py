"""Deadlines on spot markets: what each policy costs beside on demand, and how many deadlines it misses.

    python -m benchmarks.spot [--traces DIR] [--spot-price 0.918] [--on-demand-price 3.06] [--starts 8]

Without --traces the markets are synthetic (drawn, and said so). With it: a file or a folder that
`springtide simulate --cloud --spot-trace` reads. A job of 24 h on 16 machines starts at several moments of each zone;
boots, changeovers and undone work are paid.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from experiments.spot_counts import SpotZone, draw_spot_counts, read_spot_counts
from experiments.spot_replay import MarketOutcome, replay_spot, scale_speeds
from rich.console import Console

from springtide.cloud.spot_policies import HOUR_S, POLICIES, RIGID, SpotJob

MACHINES = 16
LENGTH_H = 24.0
STRETCHES = (1.1, 1.25, 1.5, 2.0)
SCALINGS = (1.0, 0.9)
DRAWN = 6
DRAWN_S = 10 * 86400.0
LAYOUT = "{:>8} {:>8} {:18} {:>6} {:>12} {:>12} {:>7} {:>8} {:>8}"


def main() -> None:
    """Print the table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--spot-price", type=float, default=0.918, help="USD per machine-hour where there is none")
    parser.add_argument("--on-demand-price", type=float, default=3.06)
    parser.add_argument("--starts", type=int, default=8, help="moments of each zone at which the job starts")
    args = parser.parse_args()
    zones = read_spot_counts(args.traces, args.spot_price) if args.traces else draw_markets(args.spot_price)
    console = Console(width=130)
    origin = str(args.traces.name) if args.traces else "synthetic"
    console.print(f"{len(zones)} zones ({origin}), {args.starts} starts each", highlight=False)
    heads = ("deadline", "scaling", "policy", "runs", "of on demand", "of best rigid", "missed", "losses", "changes")
    console.print(LAYOUT.format(*heads), style="bold")
    for scaling in SCALINGS:
        for stretch in STRETCHES:
            print_block(console, zones, make_job(stretch, scaling, args.on_demand_price), args.starts, scaling)


def draw_markets(spot_usd_per_h: float) -> list[SpotZone]:
    """Synthetic zones."""
    return [draw_spot_counts(f"drawn-{seed}", MACHINES, DRAWN_S, spot_usd_per_h, seed) for seed in range(DRAWN)]


def make_job(stretch: float, scaling: float, usd_per_h: float) -> SpotJob:
    """The job with a deadline of `stretch` times its length."""
    return SpotJob(LENGTH_H * HOUR_S, stretch * LENGTH_H * HOUR_S, scale_speeds(MACHINES, scaling), usd_per_h)


def print_block(console: Console, zones: Sequence[SpotZone], job: SpotJob, starts: int, scaling: float) -> None:
    """One job on all markets: a line per policy."""
    runs: dict[str, list[MarketOutcome]] = {policy: [] for policy in POLICIES}
    for zone in zones:
        last_s = max(zone.times_s[-1] - job.deadline_s, 0.0)
        for number in range(starts):
            market = zone.shifted(last_s * number / starts)
            for policy, outcomes in runs.items():
                outcomes.append(replay_spot(job, market, policy))
    costs = {policy: fmean(one.cost_usd for one in outcomes) for policy, outcomes in runs.items()}
    best = min(costs[policy] for policy in RIGID)
    for policy, outcomes in runs.items():
        console.print(
            LAYOUT.format(
                f"{job.deadline_s / job.work:.2f} x",
                f"n^{scaling:g}",
                policy,
                len(outcomes),
                f"{costs[policy] / costs['on-demand']:.3f}",
                f"{costs[policy] / best:.3f}",
                sum(not one.met for one in outcomes),
                f"{fmean(one.losses for one in outcomes):.1f}",
                f"{fmean(one.changes for one in outcomes):.1f}",
            ),
            highlight=False,
        )


if __name__ == "__main__":
    main()
