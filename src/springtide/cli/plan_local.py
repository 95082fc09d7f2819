"""The local half of `springtide plan`: what a job would be told by this platform. Stores and reserves nothing.

With a server it asks it; without one it decides in this process, on this machine's idle devices.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from springtide.cli.connections import has_server
from springtide.cli.outputs import OutputForm, count_devices, print_table, say, show_seconds, show_time, tell
from springtide.errors import ServerError

if TYPE_CHECKING:
    from springtide.client.job_folders import JobFolder
    from springtide.client.replies import PlanInfo
    from springtide.core.job_file_parts.job_settings import JobSettings
    from springtide.core.job_file_parts.sweeps import SweptJob

EXIT_CODES = {"admitted": 0}
MOST_CASES = 20
LEGEND = "STEPS/S: as measured; PLANNED WITH: the steps/s that a promise counts on; ALONE: with nobody else here"


def plan_local(job: Path, deadline: str | None, probe: bool, form: OutputForm, settings: "JobSettings") -> None:
    """Print what a submission would be told now; exit code 0 if it would be admitted, else 3."""
    from springtide.client.job_folders import load_job

    folder = load_job(job, settings, deadline=deadline)
    swept = list_swept(folder)
    first = replace(folder, job=swept[0].job) if swept else folder
    plan = ask_server(first, probe) or plan_here(first, probe)
    whole = sum_up(plan, swept)
    if not form.write(plan.document | ({"sweep": whole} if swept else {})):
        if swept:
            print_cases(swept)
        print_plan(plan)
        if swept:
            print_whole(whole)
    raise typer.Exit(EXIT_CODES.get(plan.answer, 3))


def list_swept(folder: "JobFolder") -> "tuple[SweptJob, ...]":
    """The jobs of a sweep; none where there is no sweep."""
    from springtide.core.job_file_parts.sweeps import expand_sweep

    return expand_sweep(folder.job) if folder.job.sweep is not None else ()


def sum_up(plan: "PlanInfo", swept: "Sequence[SweptJob]") -> dict[str, Any]:
    """What all jobs of a sweep take at least, if each goes like the first: device-seconds, and dollars."""
    device_s = min((one.share * one.alone_s for one in plan.shares), default=None)
    return {
        "cases": [dict(one.values) for one in swept],
        "least_device_s": None if device_s is None else device_s * len(swept),
        "cost_usd": None if plan.cost_usd is None else plan.cost_usd * len(swept),
    }


def print_cases(swept: "Sequence[SweptJob]") -> None:
    """The jobs of a sweep by their values; of many the first ones."""
    say(f"a sweep of {len(swept)} jobs:")
    for one in swept[:MOST_CASES]:
        say(f"  {one.number}: {'  '.join(f'{name}={value}' for name, value in one.values.items())}")
    if len(swept) > MOST_CASES:
        say(f"  ... and {len(swept) - MOST_CASES} more; -o json has all")
    say("the first of them, alone:")


def print_whole(whole: dict[str, Any]) -> None:
    """What a sweep takes in all."""
    if whole["least_device_s"] is None:
        return
    cost = "" if whole["cost_usd"] is None else f" and {whole['cost_usd']:.2f} USD"
    taken = f"at least {show_seconds(whole['least_device_s'])} of device time{cost}"
    say(f"all {len(whole['cases'])}, if each goes like the first: {taken}")


def ask_server(folder: "JobFolder", probe: bool) -> "PlanInfo | None":
    """The server's word, or None where no server answers; it measures unknown code on devices that no promise needs."""
    from springtide.client.client import Client

    try:
        with Client() as client:
            return client.plan(folder, probe)
    except ServerError:
        if has_server():
            raise
        return None


def plan_here(folder: "JobFolder", probe: bool) -> "PlanInfo":
    """What a server on this machine would say with nothing else to do; speeds measured earlier are used."""
    from springtide.client.replies import PlanInfo
    from springtide.control.offline_plan import plan_offline
    from springtide.control.storage.state_dir import find_home

    return PlanInfo.read(plan_offline(find_home(), folder.job, folder.pack(), probe, tell))


def print_plan(plan: "PlanInfo") -> None:
    """The answer, how each share would do, and the plan."""
    say(plan.sentence)
    rows = (
        (str(one.share), f"{one.steps_per_s:.2f}", f"{one.planned_steps_per_s:.2f}", show_seconds(one.alone_s))
        for one in plan.shares
    )
    if plan.shares:
        print_table(("DEVICES", "STEPS/S", "PLANNED WITH", "ALONE IT TAKES"), rows, legend=LEGEND)
    for segment in plan.plan:
        say(f"plan: from {show_time(segment.start)} on {count_devices(segment.share)}")
    if plan.cost_usd is not None:
        say(f"cost: at least {plan.cost_usd:.2f} USD")
    for offer in plan.offers:
        what = "all its work" if offer.kind == "deadline" else f"{offer.steps} steps"
        say(f"would be accepted: {what} by {show_time(offer.deadline)} (in {show_seconds(offer.deadline_in_s)})")
