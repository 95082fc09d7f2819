"""The cloud half of `springtide plan`: which machines to rent, when the job ends and what it costs.

No side effects but the files that are asked for.
"""

import shlex
from dataclasses import dataclass, replace
from getpass import getuser
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

import typer

from springtide.cli.catalog import describe_age, warn_age
from springtide.cli.checkout import CHECKOUT
from springtide.cli.outputs import OutputForm, check_picture, print_rich, tell, tell_legend, write_text
from springtide.cli.plan_options import CloudJob, ResultOptions
from springtide.errors import InputError, JobError

if TYPE_CHECKING:
    from springtide.cloud.catalog import Catalog
    from springtide.cloud.estimates import Counts
    from springtide.cloud.planner import PlanSearch
    from springtide.cloud.plans import Limits, Range, RentalPlan, Work
    from springtide.cloud.skypilot import TaskLaunch
    from springtide.cloud.step_times import Speed, Speeds

DECLINED = 3
COUNTING_S = 60.0
EXPORTS = ("skypilot", "probe")
DIST = CHECKOUT / "dist"  # where `make wheel` puts them
LEGEND = (
    "GPUs: of all its machines; (90 %): in nine cases of ten it is within; on time: the probability of that; "
    "estimate: counted, not measured"
)
REMEDY = (
    "these are estimates from counted operations and published peaks at 20-50 % utilisation, for ranking only; "
    "measure first: --export probe writes a ten-minute SkyPilot task, --profile FILE uses its result"
)


@dataclass(frozen=True, slots=True)
class KnownWork:
    """A job as the planner takes it: with all that was missing found, its work, and its speeds by machine."""

    job: CloudJob
    work: "Work"
    speeds: "Speeds"


def plan_rental(job: CloudJob, catalog: "Catalog", limits: "Limits", result: ResultOptions, form: OutputForm) -> None:
    """Search, print, draw and export; exit 3 when nothing respects the limits."""
    from springtide.cloud.plan_reports import draw_front
    from springtide.cloud.planner import search_plans
    from springtide.cloud.plans import Wanted

    if result.pareto is not None:
        check_picture(result.pareto, "--pareto")
    found = find_work(job, catalog)
    search = search_plans(catalog, found.speeds, found.work, limits, Wanted(front=result.pareto is not None))
    warn_age(catalog)
    if result.pareto is not None:
        draw_front(search, limits, result.pareto)
    show_search(search, found.work, limits, catalog, form)
    if not job.points:
        tell(REMEDY)
    if result.export is not None:
        export(result, search, catalog, found.work.device_memory_gib, found.job)
    if not search.best:
        raise typer.Exit(DECLINED)


def find_work(job: CloudJob, catalog: "Catalog") -> KnownWork:
    """The work of a job and its speeds: by its points, or where it has none by counting one step of its script."""
    from springtide.cloud.estimates import estimate_speeds

    if job.points:
        return KnownWork(job, make_work(job), load_speeds(job, catalog))
    counted, counts = count_job(job)
    return KnownWork(counted, make_work(counted), estimate_speeds(catalog, counts))


def make_work(job: CloudJob) -> "Work":
    """The work of a job, or what is missing to know it."""
    from springtide.cloud.plans import Work
    from springtide.throughput.tables.points import read_points

    if job.steps is None:
        raise JobError("steps are not known; give --steps N, or steps: in the job file")
    if job.global_batch is None:
        raise JobError("the global batch is not known; give --global-batch N (samples per step over all devices)")
    if job.logical_workers is not None and job.global_batch < job.logical_workers:
        raise JobError(
            f"global batch {job.global_batch} is below the {job.logical_workers} logical workers; each needs a sample"
        )
    model = job.model or (read_points(job.points[0])[0].layout.model if job.points else job.name)
    level = job.level or ("D1" if job.logical_workers else "none")
    return Work(model, job.steps, job.global_batch, job.logical_workers, level, job.memory_gib)


def count_job(job: CloudJob) -> tuple[CloudJob, "Counts"]:
    """A job never measured, with what one step of its script on this machine's CPU shows."""
    from springtide.cloud.estimates import Counts
    from springtide.throughput.probing import ProbeTrial, ProfiledScript, run_trial

    words = shlex.split(job.command)
    script = next((place for place, word in enumerate(words) if word.endswith(".py")), None)
    if script is None or not (job.folder / words[script]).is_file():
        raise JobError(
            "this job was never measured and its script is not here to count; give its points with --points FILE "
            "(make them with: springtide profile SCRIPT), or a job file whose run: names the script"
        )
    tell(f"counting one step of {words[script]} on the CPU")
    subject = ProfiledScript(job.folder / words[script], tuple(words[script + 1 :]), job.name, "cpu", job.folder)
    facts = run_trial(subject, ProbeTrial(1, 1.0), COUNTING_S, 1, count=True).facts
    batch = facts["local_batch"]
    counts = Counts(facts["flops"] / batch, facts["parameter_bytes"], facts["activation_bytes"] / batch)
    workers = job.logical_workers or facts["script_logical_workers"]
    whole = batch * workers
    # An epoch of other workers or another batch has another number of steps.
    as_written = workers == facts["script_logical_workers"] and job.global_batch in (None, whole)
    known = replace(
        job,
        steps=job.steps or (facts["script_steps"] if as_written else None),
        logical_workers=workers,
        global_batch=job.global_batch or whole,
        memory_gib=job.memory_gib or counts.memory_gib,
    )
    return known, counts


def load_speeds(job: CloudJob, catalog: "Catalog") -> dict[str, "Speed"]:
    """The speeds that the job's points give on machines of this catalog."""
    from springtide.cloud.step_times import find_speeds
    from springtide.throughput.tables.points import read_points

    points = [point for file in job.points for point in read_points(file)]
    others = read_points(job.prior) if job.prior else []
    return find_speeds(points, others, job.model or points[0].layout.model, ", ".join(map(str, job.points)), catalog)


def show_search(search: "PlanSearch", work: "Work", limits: "Limits", catalog: "Catalog", form: OutputForm) -> None:
    """Print what was found, as JSON or for people."""
    from springtide.cloud.plan_reports import compare_obvious, describe_search, list_remarks

    obvious = compare_obvious(search, work, limits)
    if form.write(describe_search(search, work, limits, obvious) | {"prices": describe_age(catalog)}):
        return
    if search.best:
        _print_plans("plans", search.best, search, limits)
        choices: dict[tuple[str, str], list[str]] = {}
        for found in obvious:
            choices.setdefault((found.plan.name, found.why), []).append(found.choice)
        for (name, why), names in choices.items():
            print(f"  not the {' and the '.join(names)} ({name}): {why}")
    else:
        print(f"nothing respects the limits; what binds: {', '.join(search.binding) or 'no machine can run the job'}")
        _print_plans("nearest", search.nearest, search, limits)
    for remark in list_remarks(search, limits):
        print(f"  {remark}")


def _print_plans(title: str, plans: "tuple[RentalPlan, ...]", search: "PlanSearch", limits: "Limits") -> None:
    from rich.table import Table

    from springtide.cloud.plan_reports import explain_miss, explain_plan

    table = Table(title, "GPUs", "$/h", "time (90 %)", "cost $ (90 %)", "on time", "why", box=None)
    for plan in plans:
        cost = f"{plan.cost_usd.value:.2f} ({plan.cost_usd.low:.2f}-{plan.cost_usd.high:.2f})"
        chance = "" if plan.chance is None else f"{plan.chance:.0%}"
        why = explain_plan(plan, search, limits) if search.best else explain_miss(plan, limits)
        basis = plan.basis if plan.basis == "estimate" else ""
        remark = "; ".join(text for text in (basis, why, plan.note) if text)
        table.add_row(
            plan.name, str(plan.devices), f"{plan.usd_per_h:.2f}", show_range(plan.time_s), cost, chance, remark
        )
    print_rich(table, 200)
    tell_legend(LEGEND)


def show_range(time_s: "Range") -> str:
    """A time with its interval, in minutes below an hour, else in hours."""
    unit_s, unit = (60.0, "min") if time_s.value < 3600 else (3600.0, "h")
    return f"{time_s.value / unit_s:.1f} {unit} ({time_s.low / unit_s:.1f}-{time_s.high / unit_s:.1f})"


def export(
    result: ResultOptions, search: "PlanSearch", catalog: "Catalog", memory_gib: float | None, job: CloudJob
) -> None:
    """Write the SkyPilot task of the best plan, or of a probe."""
    import yaml

    from springtide.cloud.estimates import choose_probes
    from springtide.cloud.skypilot import TaskLaunch, export_plan, export_probe

    if result.export not in EXPORTS:
        raise InputError(f"export {result.export!r} is unknown; there are {', '.join(EXPORTS)}")
    launch = TaskLaunch(
        job.name,
        job.command,
        bucket=result.bucket,
        owner=f"{getuser()}@{gethostname()}{job.folder.resolve()}",
        wheel=find_wheel(result.wheel, result.from_index),
    )
    if result.export == "skypilot":
        if not search.best:
            raise InputError("nothing to export: no plan respects the limits")
        chosen = next((plan for plan in search.best if len(plan.parts) == 1), search.best[0])
        text = yaml.safe_dump(export_plan(chosen, launch), sort_keys=False)
        tell(f"exported {chosen.name}{_name_bucket(chosen, launch)}")
    else:
        probe = export_probe(choose_probes(catalog, memory_gib), launch)
        tell(f"probing {' and '.join(probe.machines)} costs at most ${probe.cost_usd:.2f}")
        text = yaml.safe_dump_all(probe.tasks, sort_keys=False)
    target = result.export_file or f"{job.name}.{result.export}.yaml"
    write_text(text, target)
    if target != "-":
        tell(f"written to {target}")


def find_wheel(given: str | None, from_index: bool) -> str | None:
    """The wheel to send with a task: the one given, or the newest of the checkout; None: what an index has."""
    if given is not None and from_index:
        raise InputError("--wheel and --from-index are two ways to install springtide on rented machines; give one")
    if from_index:
        return None
    if given is None:
        newest = max(DIST.glob("springtide-*.whl"), key=lambda path: path.stat().st_mtime, default=None)
        if newest is None:
            raise InputError(
                "the task would have no springtide to install: there is no wheel in dist/ of a checkout; make one: "
                "make wheel, give one with --wheel FILE, or say --from-index where your package index has springtide"
            )
        tell(f"the task is sent {newest}, the newest wheel of the checkout")
        return str(newest)
    path = Path(given).resolve()
    if path.suffix != ".whl" or not path.is_file():
        raise InputError(f"--wheel {given!r} is not a wheel that is here; make one with: make wheel (it lies in dist/)")
    return str(path)


def _name_bucket(plan: "RentalPlan", launch: "TaskLaunch") -> str:
    from springtide.cloud.skypilot import name_bucket

    if not plan.spot and launch.bucket is None:
        return ""
    return f"; its checkpoints go to the bucket {launch.bucket or name_bucket(launch)} (another with --bucket NAME)"
