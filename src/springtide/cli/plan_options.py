"""The options of `springtide plan` in groups, and what they mean together with a job's file, which fills their gaps."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from springtide.cli.catalog import load_catalog, split
from springtide.cli.option_groups import option
from springtide.errors import JobError

if TYPE_CHECKING:
    from springtide.client.job_folders import JobFolder
    from springtide.cloud.catalog import Catalog
    from springtide.cloud.plans import Limits
    from springtide.core.job_file import JobFile

PANEL = "A job that runs on rented machines: stay or move?"


@dataclass(frozen=True, slots=True)
class MarketOptions:
    """Where to rent: clouds, regions, types, and whose catalog. Without clouds nothing is to be rented."""

    cloud: str | None = option(None, "Clouds to rent from: aws, gcp, azure, joined by commas.", metavar="NAMES")
    region: str = option("", "Regions, joined by commas.", metavar="NAMES")
    types: str = option("", "GPU or instance types, joined by commas.", "--type", metavar="NAMES")
    catalog: Path | None = option(None, "Your own catalog (CSV).", metavar="FILE")

    def load(self, usual_types: Sequence[str] = ()) -> "Catalog":
        """The machines to choose from; of the usual types where none are named."""
        types = split(self.types) or list(usual_types)
        return load_catalog(self.catalog).narrow(split(self.cloud or ""), split(self.region), types)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What is known of the job beside its file: how fast it was measured, and how large it is."""

    points: list[Path] = option(
        [], "Measured points of the job (CSV). Repeat for more files.", "--points", "--profile", metavar="FILE"
    )
    prior: Path | None = option(None, "Points of other models on the same kind of cluster.", metavar="FILE")
    model: str | None = option(None, "Which model of the points file. Default: its first.")
    steps: int | None = option(None, "Steps to train.", min=1)
    global_batch: int | None = option(None, "Samples per step over all devices.", min=1)
    logical_workers: int | None = option(None, "Logical workers of the job.", min=1)
    determinism: str | None = option(None, "D0, D1, D2, or none (batches by speed).", metavar="LEVEL")
    memory: float | None = option(None, "GPU memory the job needs.", metavar="GIB")


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """What a plan must respect."""

    deadline: str | None = option(None, "6h, 1h30m, or a date and time with zone.")
    budget: str | None = option(None, "Most to spend in all.", metavar="USD")
    max_price: float | None = option(None, "Most to spend per hour.", metavar="USD")
    min_throughput: float | None = option(None, "Fewest steps per second.", metavar="STEPS")
    spot: bool = option(False, "Allow spot machines.", "--spot")
    mixes: bool = option(True, "Allow two machine types together, where the determinism level does.")
    confidence: float = option(0.9, "How sure deadline and budget must be.", min=0.5, max=0.999)
    revocation: float = option(0.1, "Spot revocations per node-hour.", min=0)
    startup: str = option("5m", "From renting to the first step.")
    guess_network: bool = option(False, "Plan several nodes from one node's points.", "--guess-network")


@dataclass(frozen=True, slots=True)
class ResultOptions:
    """What to make of the plans: a picture of the front, a SkyPilot task and where to write it."""

    pareto: Path | None = option(None, "Draw plans by time and cost.", metavar="FILE")
    export: str | None = option(None, "skypilot: the best plan; probe: measure the job first.", metavar="WHAT")
    export_file: str | None = option(None, "Where to write it.", metavar="FILE|-")
    bucket: str | None = option(None, "Keep an exported task's checkpoints here.", metavar="NAME")
    wheel: str | None = option(
        None,
        "Send this wheel of springtide with an exported task. Default: the newest in dist/ of the checkout.",
        metavar="FILE",
    )
    from_index: bool = option(False, "Let an exported task install springtide from your package index.", "--from-index")


@dataclass(frozen=True, slots=True)
class RunningOptions:
    """Where a job stands: the plan it runs under, and what was seen of it."""

    plan_file: Path | None = option(
        None, "The plan it runs under, as -o json printed it.", "--running", metavar="PLAN.json", rich_help_panel=PANEL
    )
    done: int = option(0, "Steps that are done.", min=0, metavar="STEPS", rich_help_panel=PANEL)
    observed_step_s: float | None = option(
        None, "What a step takes there.", "--observed", min=1e-9, metavar="SECONDS", rich_help_panel=PANEL
    )
    lost: bool = option(False, "Machines were taken away.", "--lost", rich_help_panel=PANEL)


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


def describe_job(folder: "JobFolder", about: JobOptions) -> CloudJob:
    """The job as the options say, or its file, or the notes beside its first profile that has any."""
    from springtide.throughput.tables.points import Notes, read_notes

    file = folder.job
    notes = next((found for found in map(read_notes, about.points) if found != Notes()), Notes())
    workers = about.logical_workers or file.logical_workers or notes.logical_workers
    noted_batch = notes.worker_batch * workers if notes.worker_batch is not None and workers is not None else None
    batch = about.global_batch or noted_batch
    steps = about.steps or file.steps
    # An epoch of other workers or another batch has another number of steps.
    if steps is None and (workers, batch) == (notes.logical_workers, noted_batch):
        steps = notes.steps
    return CloudJob(
        file.name or (folder.file.stem if folder.file else "job"),
        file.run if isinstance(file.run, str) else shlex.join(file.run),
        folder.workdir,
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
