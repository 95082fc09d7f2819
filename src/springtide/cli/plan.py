"""`springtide plan`: what it would take, when it would finish and what it would cost. Nothing is started."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import typer

from springtide.cli.outputs import JSON_FILE, OUTPUT, OutputForm, OutputOption
from springtide.cli.plan_cloud import CloudJob, CloudMarket, Wishes, plan_cloud
from springtide.cli.replan import RunningRental
from springtide.errors import InputError, JobError

if TYPE_CHECKING:
    from springtide.core.job_file import JobFile

RUNNING = "A job that runs on rented machines: stay or move?"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a job is; None is not known."""

    steps: int | None
    logical_workers: int | None
    global_batch: int | None


def run(
    job: Path = typer.Argument(None, metavar="[JOB.yaml]", help="A job file."),
    cloud: str = typer.Option(None, metavar="NAMES", help="Clouds to rent from: aws, gcp, azure, joined by commas."),
    points: list[Path] = typer.Option(
        [], "--points", "--profile", metavar="FILE", help="Measured points of the job (CSV); again for more files."
    ),
    prior: Path = typer.Option(None, metavar="FILE", help="Points of other models on the same kind of cluster."),
    model: str = typer.Option(None, help="Which model of the points file. Default: its first."),
    steps: int = typer.Option(None, min=1, help="Steps to train."),
    global_batch: int = typer.Option(None, min=1, help="Samples per step over all devices."),
    logical_workers: int = typer.Option(None, min=1, help="Logical workers of the job."),
    determinism: str = typer.Option(None, metavar="LEVEL", help="D0, D1, D2, or none (batches by speed)."),
    deadline: str = typer.Option(None, help="6h, 1h30m, or a date and time with zone."),
    budget: str = typer.Option(None, metavar="USD", help="Most to spend in all."),
    max_price: float = typer.Option(None, metavar="USD", help="Most to spend per hour."),
    min_throughput: float = typer.Option(None, metavar="STEPS", help="Fewest steps per second."),
    region: str = typer.Option("", metavar="NAMES", help="Regions, joined by commas."),
    kind: str = typer.Option("", "--type", metavar="NAMES", help="GPU or instance types, joined by commas."),
    spot: bool = typer.Option(False, "--spot", help="Allow spot machines."),
    mixes: bool = typer.Option(True, help="Allow two machine types together, where the determinism level does."),
    memory: float = typer.Option(None, metavar="GIB", help="GPU memory the job needs."),
    confidence: float = typer.Option(0.9, min=0.5, max=0.999, help="How sure deadline and budget must be."),
    revocation: float = typer.Option(0.1, min=0, help="Spot revocations per node-hour."),
    startup: str = typer.Option("5m", help="From renting to the first step."),
    guess_network: bool = typer.Option(False, "--guess-network", help="Plan several nodes from one node's points."),
    catalog: Path = typer.Option(None, metavar="FILE", help="Your own catalog (CSV)."),
    pareto: Path = typer.Option(None, metavar="FILE", help="Draw plans by time and cost."),
    export: str = typer.Option(None, metavar="WHAT", help="skypilot: the best plan; probe: measure the job first."),
    export_file: str = typer.Option(None, metavar="FILE|-", help="Where to write it."),
    bucket: str = typer.Option(None, metavar="NAME", help="Keep an exported task's checkpoints here."),
    running: Path = typer.Option(
        None, metavar="PLAN.json", rich_help_panel=RUNNING, help="The plan it runs under, as -o json printed it."
    ),
    done: int = typer.Option(0, min=0, rich_help_panel=RUNNING, metavar="STEPS", help="Steps that are done."),
    observed: float = typer.Option(
        None, min=1e-9, rich_help_panel=RUNNING, metavar="SECONDS", help="What a step takes there."
    ),
    lost: bool = typer.Option(False, "--lost", rich_help_panel=RUNNING, help="Machines were taken away."),
    probe: bool = typer.Option(False, "--probe", help="Without --cloud: run unknown code for at most 15 s."),
    json_file: str = JSON_FILE,
    output: OutputOption = OUTPUT,
) -> None:
    """Plan a job: the best machines with time, cost and the chance to meet the deadline.

    Without --cloud: what this platform would answer to the job now; exit code 3 unless it would be admitted.

    Examples:

      springtide plan job.yaml --probe

      springtide plan --cloud aws --points points.csv --steps 90000 --global-batch 256 --deadline 6h --spot

      springtide plan job.yaml --cloud aws,gcp --points points.csv --budget 50 --pareto plans.png
    """
    from springtide.cloud.plans import Limits
    from springtide.cloud.spot import SpotTerms
    from springtide.core.durations import parse_deadline, parse_span
    from springtide.core.job_file import JobFile, read_job_file

    form = OutputForm(output, json_file)
    if cloud is None:
        if job is None:
            raise InputError("nothing to plan: give a job file, or say where to rent with --cloud aws[,gcp,azure]")
        from springtide.cli.plan_local import plan_local

        plan_local(job, deadline, probe, form)
    file = JobFile(run="python train.py") if job is None else read_job_file(job)
    now_s = time()
    due = deadline or file.deadline
    limits = Limits(
        deadline_s=None if due is None else parse_deadline(due, now_s) - now_s,
        budget_usd=read_usd(budget) if budget is not None else file.budget_usd,
        most_usd_per_h=max_price,
        fewest_steps_per_s=min_throughput,
        spot=spot,
        mixes=mixes,
        confidence=confidence,
        startup_s=parse_span(startup, "startup"),
        guess_network=guess_network,
        terms=SpotTerms(revocations_per_node_h=revocation),
    )
    sizes = find_sizes(file, points, Sizes(steps, logical_workers, global_batch))
    types = kind or ",".join(file.device_types or ())
    plan_cloud(
        CloudJob(
            file.name or (job.stem if job else "job"),
            file.run if isinstance(file.run, str) else shlex.join(file.run),
            Path() if job is None else job.parent / file.workdir,
            tuple(points),
            prior,
            model,
            sizes.steps,
            sizes.global_batch,
            sizes.logical_workers,
            choose_level(determinism, file),
            memory,
        ),
        CloudMarket(cloud, region, types, catalog),
        limits,
        Wishes(form, pareto, export, export_file, bucket),
        None if running is None else RunningRental(running, done, observed, lost),
    )


def find_sizes(file: "JobFile", points: Sequence[Path], given: Sizes) -> Sizes:
    """How large the job is: as given, or by its file, or by the notes beside its first profile that has any."""
    from springtide.throughput.tables.profile_notes import Notes, read_notes

    notes = next((found for found in map(read_notes, points) if found != Notes()), Notes())
    workers = given.logical_workers or file.logical_workers or notes.logical_workers
    noted_batch = notes.worker_batch * workers if notes.worker_batch is not None and workers is not None else None
    batch = given.global_batch or noted_batch
    steps = given.steps or file.steps
    # An epoch of other workers or another batch has another number of steps.
    if steps is None and (workers, batch) == (notes.logical_workers, noted_batch):
        steps = notes.steps
    return Sizes(steps, workers, batch)


def read_usd(text: str) -> float:
    """An amount as `50`, `50 USD` or `$50`."""
    words = text.upper().replace("USD", "").replace("$", "").strip()
    try:
        amount = float(words)
    except ValueError:
        raise JobError(f"budget {text!r} is not an amount; write 50 or 50 USD") from None
    if not 0 < amount < float("inf"):
        raise JobError(f"budget {text!r} must be positive")
    return amount


def choose_level(asked: str | None, file: "JobFile") -> str | None:
    """The determinism level that was asked for, or that the file names; None where neither says one."""
    if asked not in (None, "D0", "D1", "D2", "none"):
        raise JobError(f"determinism {asked!r} is unknown; there are D0, D1, D2, none")
    return asked or (file.determinism if "determinism" in file.model_fields_set else None)
