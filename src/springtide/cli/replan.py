"""`springtide plan --running`: should a job on rented machines move? The live half of `cloud.reoptimise`.

The platform has no executor that rents: the job runs where SkyPilot put it, and this answers for it, by the function
that `simulate --cloud` calls. Run it from a schedule, or when a machine was lost. Nothing is moved.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from springtide.cli.catalog import warn_age
from springtide.cli.outputs import OutputForm
from springtide.cli.plan_cloud import find_work
from springtide.cli.plan_options import CloudJob, RunningOptions
from springtide.errors import InputError

if TYPE_CHECKING:
    from springtide.cloud.catalog import Catalog, Machine
    from springtide.cloud.plans import Limits, RentalPlan
    from springtide.cloud.reoptimise import Move


def plan_move(running: RunningOptions, job: CloudJob, catalog: "Catalog", limits: "Limits", form: OutputForm) -> None:
    """Print whether to keep the plan or to move, and why. The deadline of `limits` counts from now."""
    from springtide.cloud.reoptimise import RentalProgress, decide_move

    found = find_work(job, catalog)
    warn_age(catalog)
    if running.done >= found.work.steps:
        raise InputError(f"--done {running.done} leaves nothing of {found.work.steps} steps; the job has ended")
    assert running.plan_file is not None, "the mode is chosen by it"
    plan = read_plan(running.plan_file, catalog)
    seen = (running.observed_step_s, running.lost)
    progress = RentalProgress(plan, found.work.steps - running.done, limits.deadline_s, *seen)
    show_move(decide_move(progress, catalog, found.speeds, found.work, limits, limits.startup_s), form)


def read_plan(path: Path, catalog: "Catalog") -> "RentalPlan":
    """The first plan of a document that `springtide plan -o json` wrote, on machines of the catalog."""
    from springtide.cloud.plans import Range, RentalPart, RentalPlan

    try:
        told = json.loads(path.read_text(encoding="utf-8"))["plans"][0]
        parts = tuple(
            RentalPart(find_machine(part, catalog), int(part["nodes"]), float(part["local_batch"]))
            for part in told["parts"]
        )
        step_s, time_s, cost_usd = (Range(**told[name]) for name in ("step_s", "time_s", "cost_usd"))
        price = float(told["usd_per_h"])
        return RentalPlan(parts, bool(told["spot"]), price, step_s, time_s, cost_usd, told["probability"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(
            f"{path}: holds no plan ({type(error).__name__}: {error}); keep what `springtide plan ... -o json` printed"
        ) from None


def find_machine(part: dict[str, Any], catalog: "Catalog") -> "Machine":
    """The machine of a part, as the catalog has it now."""
    for machine in catalog.machines:
        if (machine.instance_type, machine.region) == (part["instance_type"], part["region"]):
            return machine
    raise InputError(
        f"{part['instance_type']} in {part['region']} is not in the catalog searched; name its cloud with --cloud"
    )


def show_move(move: "Move", form: OutputForm) -> None:
    """Print the decision."""
    from springtide.cloud.plans import describe_plan

    plan = None if move.plan is None else describe_plan(move.plan)
    if form.write({"schema": 1, "move": plan is not None, "why": move.why, "plan": plan}):
        return
    if move.plan is None:
        print(f"stay: {move.why}")
    else:
        cost = f"${move.plan.cost_usd.low:.2f}-{move.plan.cost_usd.high:.2f}"
        print(f"move to {move.plan.name}: {move.why}; the rest takes {move.plan.time_s.value / 3600:.1f} h and {cost}")
