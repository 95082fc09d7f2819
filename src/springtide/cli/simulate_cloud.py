"""What `springtide simulate --cloud` shows: a job on rented machines in virtual time, with and without spot.

Mixes of two types are not tried here: each replanning could take a second.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from springtide.cli.catalog import describe_age, load_catalog, split, warn_age
from springtide.cli.outputs import write_report
from springtide.cli.plan_cloud import CloudJob, CloudMarket, find_speeds, load_speeds, make_work
from springtide.errors import InputError, JobError

if TYPE_CHECKING:
    from springtide.cloud.catalog import Catalog, Machine
    from springtide.cloud.plans import Limits
    from springtide.cloud.spot_simulation import SpotOutcome
    from springtide.cloud.spot_traces import SpotTrace
    from springtide.cloud.step_times import Speed

CLOUDS = ("aws", "azure", "gcp")
TRACE_S = 90 * 86400.0
TRACE_NODES = 4  # public preemption rates are of groups of four


@dataclass(frozen=True, slots=True)
class Draws:
    """How often to simulate: so many seeds, how far true speeds stray, and a trace file instead of drawn ones."""

    seeds: int = 5
    truth_spread: float = 0.08
    trace: Path | None = None


@dataclass(frozen=True, slots=True)
class CloudRun:
    """One simulated life of the job: its seed, whether spot was allowed, and how it ended."""

    seed: int
    spot: bool
    outcome: "SpotOutcome"


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of `springtide simulate` that belong to `--cloud`."""

    points: Path | None
    prior: Path | None
    model: str | None
    steps: int | None
    global_batch: int | None
    logical_workers: int | None
    deadline: str | None
    budget_usd: float | None
    regions: str
    types: str
    catalog: Path | None
    seeds: int


def read_words(words: Sequence[Path]) -> tuple[str, Path | None]:
    """The clouds and the spot trace among the words of the command line: names of clouds, and at most one file."""
    named = [str(word) for word in words if set(split(str(word))) <= set(CLOUDS)]
    files = [word for word in words if str(word) not in named]
    if len(files) > 1:
        raise InputError(
            f"--cloud takes one spot trace, not {len(files)} ({', '.join(map(str, files))}); "
            f"clouds are named {', '.join(CLOUDS)}"
        )
    return ",".join(named), files[0] if files else None


def simulate_asked(asked: Asked, words: Sequence[Path], json_file: str | None) -> None:
    """What the options of `springtide simulate --cloud` ask for."""
    from springtide.cloud.plans import Limits
    from springtide.core.durations import parse_span

    clouds, trace = read_words(words)
    batches = (asked.steps, asked.global_batch, asked.logical_workers)
    points = () if asked.points is None else (asked.points,)
    job = CloudJob("job", "", Path(), points, asked.prior, asked.model, *batches, "D1", None)
    limits = Limits(
        deadline_s=None if asked.deadline is None else parse_span(asked.deadline, "deadline"),
        budget_usd=asked.budget_usd,
        mixes=False,
    )
    draws = Draws(asked.seeds, trace=trace)
    simulate_cloud(job, CloudMarket(clouds, asked.regions, asked.types, asked.catalog), limits, draws, json_file)


def simulate_cloud(job: CloudJob, market: CloudMarket, limits: "Limits", draws: Draws, json_file: str | None) -> None:
    """Simulate the job on demand and with spot, once per seed, and print what it cost and whether it was on time."""
    from springtide.cloud.spot_simulation import SpotScenario, simulate_job

    catalog = load_catalog(market.catalog).narrow(split(market.clouds), split(market.regions), split(market.types))
    if not job.points:
        job, speeds = make_example(job, catalog)
    else:
        speeds = load_speeds(job, catalog)
    work = make_work(job)
    runs = []
    for seed in range(draws.seeds):
        setting = SpotScenario(
            catalog, speeds, find_trace(draws, catalog.machines, seed), draws.truth_spread, seed=seed
        )
        for spot in (False, True):
            runs.append(CloudRun(seed, spot, simulate_job(work, replace(limits, spot=spot), setting)))
    warn_age(catalog)
    document = {"schema": 1, "job": asdict(work), "limits": asdict(limits), "prices": describe_age(catalog)}
    if not write_report(document | summarise(runs) | {"runs": list(map(describe_run, runs))}, json_file):
        print_runs(runs)


def make_example(job: CloudJob, catalog: "Catalog") -> tuple[CloudJob, dict[str, "Speed"]]:
    """A job for those who gave none: 90 epochs of ResNet-50 at the packaged speeds of A100s; it says so on stderr."""
    from springtide.throughput.tables.formats import TableFormat, import_points
    from springtide.throughput.tables.profiles import PACKAGED

    if (job.steps, job.global_batch, job.model) != (None, None, None):
        raise JobError("a job on rented machines needs its points; give --points FILE (made by springtide profile)")
    print("no --points: an example, ResNet-50 for 450000 steps of 256 at the packaged A100 speeds", file=sys.stderr)
    points = import_points(TableFormat(PACKAGED / "a100", "A100", 8), "elasticflow")
    example = replace(job, name="resnet50", model="resnet50", steps=450_000, global_batch=256)
    return example, find_speeds(points, [], "resnet50", "the packaged profiles", catalog)


def find_trace(draws: Draws, machines: "Sequence[Machine]", seed: int) -> "SpotTrace":
    """The trace file, or one drawn for this seed."""
    from springtide.cloud.spot_traces import draw_spot_trace, read_spot_trace

    if draws.trace is None:
        return draw_spot_trace(machines, TRACE_NODES, TRACE_S, seed)
    trace = read_spot_trace(draws.trace)
    trace.check_covers(machines)
    return trace


def summarise(runs: Sequence[CloudRun]) -> dict[str, Any]:
    """Means over the seeds, on demand and with spot, and whether the traces were drawn."""
    summary: dict[str, Any] = {"synthetic": all(run.outcome.synthetic for run in runs)}
    for name, spot in (("on_demand", False), ("spot", True)):
        chosen = [run.outcome for run in runs if run.spot is spot]
        summary[name] = {
            "cost_usd": sum(outcome.cost_usd for outcome in chosen) / len(chosen),
            "finish_s": sum(outcome.finish_s for outcome in chosen) / len(chosen),
            "met": None if chosen[0].met is None else sum(bool(outcome.met) for outcome in chosen),
            "runs": len(chosen),
        }
    return summary


def describe_run(run: CloudRun) -> dict[str, Any]:
    """A run for JSON."""
    return {"seed": run.seed, "spot": run.spot, **asdict(run.outcome)}


def print_runs(runs: Sequence[CloudRun]) -> None:
    """One line per run, then what spot did to cost and punctuality; synthetic traces are named so."""
    from rich.console import Console
    from rich.table import Table

    table = Table("trace", "rented", "hours", "cost $", "on time", "revocations", "moves", "lost h", "first", box=None)
    for run in runs:
        outcome = run.outcome
        met = "" if outcome.met is None else "yes" if outcome.met else "no"
        counts = (str(outcome.revocations), str(outcome.moves), f"{outcome.lost_s / 3600:.1f}")
        hours, cost = f"{outcome.finish_s / 3600:.1f}", f"{outcome.cost_usd:.2f}"
        rented = "spot too" if run.spot else "on demand"
        table.add_row(outcome.trace, rented, hours, cost, met, *counts, outcome.events[0].plan)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    print(tell_summary(summarise(runs)))


def tell_summary(summary: dict[str, Any]) -> str:
    """What spot changed, in one sentence."""
    plain, spot = summary["on_demand"], summary["spot"]
    change = spot["cost_usd"] / plain["cost_usd"] - 1
    sentence = f"spot: ${spot['cost_usd']:.2f} on average against ${plain['cost_usd']:.2f} on demand ({change:+.0%})"
    if spot["met"] is not None:
        sentence += f", on time {spot['met']} of {spot['runs']} against {plain['met']} of {plain['runs']}"
    return sentence + ("; prices and revocations are synthetic" if summary["synthetic"] else "")
