"""What `springtide simulate --cloud` shows: a job on rented machines in virtual time, with and without spot."""

import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from springtide.cli.catalog import load_catalog, split, warn_age
from springtide.cli.plan_cloud import Job, Market, load_speeds, make_work
from springtide.errors import JobError

if TYPE_CHECKING:
    from springtide.cloud.plans import Limits
    from springtide.cloud.spot_simulation import Outcome
    from springtide.cloud.spot_traces import SpotTrace

TRACE_S = 90 * 86400.0
TRACE_NODES = 4  # public preemption rates are of groups of four


@dataclass(frozen=True, slots=True)
class Draws:
    """How often to simulate: so many seeds, how far true speeds stray, and a trace file instead of drawn ones."""

    seeds: int = 5
    truth_spread: float = 0.08
    trace: Path | None = None


def simulate_cloud(job: Job, market: Market, limits: "Limits", draws: Draws, as_json: bool) -> None:
    """Simulate the job on demand and with spot, once per seed, and print what it cost and whether it was on time."""
    from springtide.cloud.spot_simulation import Setting, simulate_job

    if job.points is None:
        raise JobError("simulating a job needs its points; give --points FILE")
    catalog = load_catalog(market.catalog).narrow(split(market.clouds), split(market.regions), split(market.types))
    work, speeds = make_work(job), load_speeds(job, job.points, catalog)
    rows: list[tuple[int, bool, Outcome]] = []
    for seed in range(draws.seeds):
        trace = find_trace(draws, catalog.machines, seed)
        for spot in (False, True):
            setting = Setting(catalog, speeds, trace, draws.truth_spread, seed=seed)
            rows.append((seed, spot, simulate_job(work, replace(limits, spot=spot), setting)))
    warn_age(catalog)
    if as_json:
        runs = [{"seed": seed, "spot": spot, **_describe(outcome)} for seed, spot, outcome in rows]
        print(json.dumps({"schema": 1, "runs": runs}, indent=2))
    else:
        print_runs(rows)


def find_trace(draws: Draws, machines: Any, seed: int) -> "SpotTrace":
    """The trace file, or one drawn for this seed."""
    from springtide.cloud.spot_traces import draw_spot_trace, read_spot_trace

    return read_spot_trace(draws.trace) if draws.trace else draw_spot_trace(machines, TRACE_NODES, TRACE_S, seed)


def _describe(outcome: "Outcome") -> dict[str, Any]:
    return asdict(outcome)


def print_runs(rows: "list[tuple[int, bool, Outcome]]") -> None:
    """One line per run; synthetic traces are named so."""
    from rich.console import Console
    from rich.table import Table

    table = Table("trace", "spot", "hours", "cost $", "on time", "revocations", "moves", "lost h", box=None)
    for _, spot, outcome in rows:
        met = "" if outcome.met is None else "yes" if outcome.met else "no"
        counts = (str(outcome.revocations), str(outcome.moves), f"{outcome.lost_s / 3600:.1f}")
        hours, cost = f"{outcome.finish_s / 3600:.1f}", f"{outcome.cost_usd:.2f}"
        table.add_row(outcome.trace, "spot" if spot else "", hours, cost, met, *counts)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
