"""The options of `springtide plan` in groups, and what they mean together with a job's file, which fills their gaps."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from springtide.cli.catalog import load_catalog, split
from springtide.errors import JobError

if TYPE_CHECKING:
    from springtide.client.projects import Project
    from springtide.cloud.catalog import Catalog
    from springtide.cloud.plans import Limits
    from springtide.core.job_file import JobFile

PANEL = "A job that runs on rented machines: stay or move?"


@dataclass(frozen=True, slots=True)
class MarketOptions:
    """Where to rent: clouds, regions, types, and whose catalog. Without clouds nothing is to be rented."""

    cloud: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Clouds to rent from: aws, gcp, azure, joined by commas.")
    ] = None
    region: Annotated[str, typer.Option(metavar="NAMES", help="Regions, joined by commas.")] = ""
    types: Annotated[str, typer.Option("--type", metavar="NAMES", help="GPU or instance types, joined by commas.")] = ""
    catalog: Annotated[Path | None, typer.Option(metavar="FILE", help="Your own catalog (CSV).")] = None

    def load(self, usual_types: Sequence[str] = ()) -> "Catalog":
        """The machines to choose from; of the usual types where none are named."""
        types = split(self.types) or list(usual_types)
        return load_catalog(self.catalog).narrow(split(self.cloud or ""), split(self.region), types)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What is known of the job beside its file: how fast it was measured, and how large it is."""

    points: Annotated[
        list[Path],
        typer.Option(
            "--points", "--profile", metavar="FILE", help="Measured points of the job (CSV); again for more files."
        ),
    ] = field(default_factory=list)
    prior: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Points of other models on the same kind of cluster.")
    ] = None
    model: Annotated[str | None, typer.Option(help="Which model of the points file. Default: its first.")] = None
    steps: Annotated[int | None, typer.Option(min=1, help="Steps to train.")] = None
    global_batch: Annotated[int | None, typer.Option(min=1, help="Samples per step over all devices.")] = None
    logical_workers: Annotated[int | None, typer.Option(min=1, help="Logical workers of the job.")] = None
    determinism: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="D0, D1, D2, or none (batches by speed).")
    ] = None
    memory: Annotated[float | None, typer.Option(metavar="GIB", help="GPU memory the job needs.")] = None


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """What a plan must respect."""

    deadline: Annotated[str | None, typer.Option(help="6h, 1h30m, or a date and time with zone.")] = None
    budget: Annotated[str | None, typer.Option(metavar="USD", help="Most to spend in all.")] = None
    max_price: Annotated[float | None, typer.Option(metavar="USD", help="Most to spend per hour.")] = None
    min_throughput: Annotated[float | None, typer.Option(metavar="STEPS", help="Fewest steps per second.")] = None
    spot: Annotated[bool, typer.Option("--spot", help="Allow spot machines.")] = False
    mixes: Annotated[bool, typer.Option(help="Allow two machine types together, where the determinism level does.")] = (
        True
    )
    confidence: Annotated[float, typer.Option(min=0.5, max=0.999, help="How sure deadline and budget must be.")] = 0.9
    revocation: Annotated[float, typer.Option(min=0, help="Spot revocations per node-hour.")] = 0.1
    startup: Annotated[str, typer.Option(help="From renting to the first step.")] = "5m"
    guess_network: Annotated[
        bool, typer.Option("--guess-network", help="Plan several nodes from one node's points.")
    ] = False


@dataclass(frozen=True, slots=True)
class ResultOptions:
    """What to make of the plans: a picture of the front, a SkyPilot task and where to write it."""

    pareto: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw plans by time and cost.")] = None
    export: Annotated[
        str | None, typer.Option(metavar="WHAT", help="skypilot: the best plan; probe: measure the job first.")
    ] = None
    export_file: Annotated[str | None, typer.Option(metavar="FILE|-", help="Where to write it.")] = None
    bucket: Annotated[str | None, typer.Option(metavar="NAME", help="Keep an exported task's checkpoints here.")] = None


@dataclass(frozen=True, slots=True)
class RunningOptions:
    """Where a job stands: the plan it runs under, and what was seen of it."""

    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--running",
            metavar="PLAN.json",
            rich_help_panel=PANEL,
            help="The plan it runs under, as -o json printed it.",
        ),
    ] = None
    done: Annotated[int, typer.Option(min=0, rich_help_panel=PANEL, metavar="STEPS", help="Steps that are done.")] = 0
    observed_step_s: Annotated[
        float | None,
        typer.Option("--observed", min=1e-9, rich_help_panel=PANEL, metavar="SECONDS", help="What a step takes there."),
    ] = None
    lost: Annotated[bool, typer.Option("--lost", rich_help_panel=PANEL, help="Machines were taken away.")] = False


@dataclass(frozen=True, slots=True)
class CloudJob:
    """What is known of the job before planning, from options or from its file; None is not known.

    Without a level, jobs with logical workers are planned for D1, plain data-parallel ones for none.
    """

    name: str
    command: str
    folder: Path
    points: tuple[Path, ...]
    prior: Path | None
    model: str | None
    steps: int | None
    global_batch: int | None
    logical_workers: int | None
    level: str | None
    memory_gib: float | None


def describe_job(project: "Project", about: JobOptions) -> CloudJob:
    """The job as the options say, or its file, or the notes beside its first profile that has any."""
    from springtide.throughput.tables.points import Notes, read_notes

    file = project.job
    notes = next((found for found in map(read_notes, about.points) if found != Notes()), Notes())
    workers = about.logical_workers or file.logical_workers or notes.logical_workers
    noted_batch = notes.worker_batch * workers if notes.worker_batch is not None and workers is not None else None
    batch = about.global_batch or noted_batch
    steps = about.steps or file.steps
    # An epoch of other workers or another batch has another number of steps.
    if steps is None and (workers, batch) == (notes.logical_workers, noted_batch):
        steps = notes.steps
    return CloudJob(
        file.name or (project.file.stem if project.file else "job"),
        file.run if isinstance(file.run, str) else shlex.join(file.run),
        project.workdir,
        tuple(about.points),
        about.prior,
        about.model,
        steps,
        batch,
        workers,
        choose_level(about.determinism, file),
        about.memory,
    )


def read_limits(wanted: LimitOptions, file: "JobFile", now_s: float) -> "Limits":
    """The limits that the options set, or the job's file."""
    from springtide.cloud.plans import Limits
    from springtide.cloud.spot import SpotTerms
    from springtide.core.durations import parse_deadline, parse_span

    due = wanted.deadline or file.deadline
    return Limits(
        deadline_s=None if due is None else parse_deadline(due, now_s) - now_s,
        budget_usd=file.budget_usd if wanted.budget is None else read_usd(wanted.budget),
        most_usd_per_h=wanted.max_price,
        fewest_steps_per_s=wanted.min_throughput,
        spot=wanted.spot,
        mixes=wanted.mixes,
        confidence=wanted.confidence,
        startup_s=parse_span(wanted.startup, "startup"),
        guess_network=wanted.guess_network,
        terms=SpotTerms(revocations_per_node_h=wanted.revocation),
    )


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
