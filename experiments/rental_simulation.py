"""`springtide simulate --cloud`: a job on rented machines in virtual time, with and without spot.

Mixes of two types are not tried here: each replanning could take a second.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from springtide.cli.catalog import describe_age, load_catalog, split, warn_age
from springtide.cli.outputs import OutputForm, print_table
from springtide.cli.plan_cloud import load_speeds, make_work
from springtide.cli.plan_options import CloudJob
from springtide.cli.simulate_cloud import RentalOptions
from springtide.errors import InputError, JobError

if TYPE_CHECKING:
    from experiments.spot_simulation import SpotOutcome
    from experiments.spot_traces import SpotTrace
    from springtide.cloud.catalog import Catalog, Machine
    from springtide.cloud.step_times import Speed

CLOUDS = ("aws", "azure", "gcp")
TRACE_S = 90 * 86400.0
TRACE_NODES = 4  # public preemption rates are of groups of four
TRUTH_SPREAD = 0.08  # how far true speeds stray from the predicted ones


@dataclass(frozen=True, slots=True)
class CloudRun:
    """One simulated life of the job: its seed, whether spot was allowed, and how it ended."""

    seed: int
    spot: bool
    outcome: "SpotOutcome"


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


def simulate_rental(asked: RentalOptions, words: Sequence[Path], form: OutputForm) -> None:
    """Simulate the job on demand and with spot, once per seed, and print what it cost and whether it was on time."""
    from experiments.spot_simulation import SpotScenario, simulate_job
    from springtide.cloud.plans import Limits
    from springtide.core.durations import parse_span

    clouds, trace = read_words(words)
    catalog = load_catalog(asked.catalog).narrow(split(clouds), split(asked.region), split(asked.types))
    sizes = (asked.steps, asked.global_batch, asked.logical_workers)
    points = () if asked.points is None else (asked.points,)
    job = CloudJob("job", "", Path(), points, asked.prior, asked.model, *sizes, "D1", None)
    deadline_s = None if asked.deadline is None else parse_span(asked.deadline, "deadline")
    limits = Limits(deadline_s=deadline_s, budget_usd=asked.budget, mixes=False)
    job, speeds = (job, load_speeds(job, catalog)) if job.points else make_example(job, catalog)
    work = make_work(job)
    runs = []
    for seed in range(asked.seeds):
        market = find_trace(trace, catalog.machines, seed)
        setting = SpotScenario(catalog, speeds, market, TRUTH_SPREAD, seed=seed)
        for spot in (False, True):
            runs.append(CloudRun(seed, spot, simulate_job(work, replace(limits, spot=spot), setting)))
    warn_age(catalog)
    document = {"schema": 1, "job": asdict(work), "limits": asdict(limits), "prices": describe_age(catalog)}
    if not form.write(document | summarise(runs) | {"runs": list(map(describe_run, runs))}):
        print_runs(runs)


def make_example(job: CloudJob, catalog: "Catalog") -> tuple[CloudJob, dict[str, "Speed"]]:
    """A job for those who gave none: 90 epochs of ResNet-50 at the packaged speeds of A100s; it says so on stderr."""
    from springtide.cloud.step_times import find_speeds
    from springtide.throughput.tables.formats import TableFormat, import_points
    from springtide.throughput.tables.profiles import PACKAGED

    if (job.steps, job.global_batch, job.model) != (None, None, None):
        raise JobError("a job on rented machines needs its points; give --points FILE (made by springtide profile)")
    print("no --points: an example, ResNet-50 for 450000 steps of 256 at the packaged A100 speeds", file=sys.stderr)
    points = import_points(TableFormat(PACKAGED / "a100", "A100", 8), "elasticflow")
    example = replace(job, name="resnet50", model="resnet50", steps=450_000, global_batch=256)
    return example, find_speeds(points, [], "resnet50", "the packaged profiles", catalog)


def find_trace(file: Path | None, machines: "Sequence[Machine]", seed: int) -> "SpotTrace":
    """The trace file, or one drawn for this seed."""
    from experiments.spot_traces import draw_spot_trace, read_spot_trace

    if file is None:
        return draw_spot_trace(machines, TRACE_NODES, TRACE_S, seed)
    trace = read_spot_trace(file)
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
    headings = ("trace", "rented", "hours", "cost $", "on time", "revocations", "moves", "lost h", "first")
    legend = (
        "hours: until the end; revocations: spot machines taken away; lost h: work done twice; first: what was rented"
    )
    print_table(headings, map(show_run, runs), legend=legend)
    print(tell_summary(summarise(runs)))


def show_run(run: CloudRun) -> tuple[str, ...]:
    """A run as one line."""
    outcome = run.outcome
    return (
        outcome.trace,
        "spot too" if run.spot else "on demand",
        f"{outcome.finish_s / 3600:.1f}",
        f"{outcome.cost_usd:.2f}",
        "" if outcome.met is None else "yes" if outcome.met else "no",
        str(outcome.revocations),
        str(outcome.moves),
        f"{outcome.lost_s / 3600:.1f}",
        outcome.events[0].plan,
    )


def tell_summary(summary: dict[str, Any]) -> str:
    """What spot changed, in one sentence."""
    plain, spot = summary["on_demand"], summary["spot"]
    change = spot["cost_usd"] / plain["cost_usd"] - 1
    sentence = f"spot: ${spot['cost_usd']:.2f} on average against ${plain['cost_usd']:.2f} on demand ({change:+.0%})"
    if spot["met"] is not None:
        sentence += f", on time {spot['met']} of {spot['runs']} against {plain['met']} of {plain['runs']}"
    return sentence + ("; prices and revocations are synthetic" if summary["synthetic"] else "")
