"""The local half of `springtide plan`: what a job would be told by this platform. Stores and reserves nothing.

With a server it asks it; without one it decides in this process, on this machine's idle devices.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import has_server
from springtide.cli.outputs import OutputForm, count_devices, print_table, show_seconds, show_time, tell
from springtide.errors import ServerError

if TYPE_CHECKING:
    from springtide.client.projects import Project
    from springtide.client.replies import PlanInfo
    from springtide.core.job_files.job_settings import JobSettings

EXIT_CODES = {"admitted": 0}


def plan_local(job: Path, deadline: str | None, probe: bool, form: OutputForm, settings: "JobSettings") -> None:
    """Print what a submission would be told now; exit code 0 if it would be admitted, else 3."""
    from springtide.client.projects import load_job

    project = load_job(job, settings, deadline=deadline)
    if project.job.sweep is not None:
        project = take_first(project)
    plan = ask_server(project, probe) or plan_here(project, probe)
    if not form.write(plan.document):
        print_plan(plan)
    raise typer.Exit(EXIT_CODES.get(plan.answer, 3))


def take_first(project: "Project") -> "Project":
    """The project of the first job of a sweep: the others are planned like it."""
    from springtide.core.job_files.sweeps import expand_sweep

    swept = expand_sweep(project.job)
    tell(f"the sweep makes {len(swept)} jobs; this is the plan of the first, alone: {dict(swept[0].values)}")
    return replace(project, job=swept[0].job)


def ask_server(project: "Project", probe: bool) -> "PlanInfo | None":
    """The server's word, or None where no server answers; it measures unknown code on devices that no promise needs."""
    from springtide.client.client import Client

    try:
        with Client() as client:
            return client.plan(project, probe)
    except ServerError:
        if has_server():
            raise
        return None


def plan_here(project: "Project", probe: bool) -> "PlanInfo":
    """What a server on this machine would say with nothing else to do; speeds measured earlier are used."""
    from springtide.client.replies import PlanInfo
    from springtide.control.offline_plan import plan_offline
    from springtide.control.storage.state_dir import find_home

    return PlanInfo.read(plan_offline(find_home(), project.job, project.pack(), probe, tell))


def print_plan(plan: "PlanInfo") -> None:
    """The answer, how each share would do, and the plan."""
    print(f"{plan.sentence} [{plan.answer}, {plan.reason}]")
    rows = (
        (str(one.share), f"{one.steps_per_s:.2f}", f"{one.planned_steps_per_s:.2f}", show_seconds(one.alone_s))
        for one in plan.shares
    )
    if plan.shares:
        print_table(("DEVICES", "STEPS/S", "PLANNED WITH", "ALONE IT TAKES"), rows)
    for segment in plan.plan:
        print(f"plan: from {show_time(segment.start)} on {count_devices(segment.share)}")
    if plan.cost_usd is not None:
        print(f"cost: at least {plan.cost_usd:.2f} USD")
    for offer in plan.offers:
        what = "all its work" if offer.kind == "deadline" else f"{offer.steps} steps"
        print(f"would be accepted: {what} by {show_time(offer.deadline)} (in {show_seconds(offer.deadline_in_s)})")
