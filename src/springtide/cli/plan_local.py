"""The local half of `springtide plan`: what a job would be told by this platform. Stores and reserves nothing.

With a server it asks it; without one it decides in this process, on this machine's idle devices.
"""

from pathlib import Path
from typing import Any

import typer

from springtide.cli.connections import has_server
from springtide.cli.outputs import OutputForm, print_table, show_seconds, tell
from springtide.errors import ServerError

EXIT_CODES = {"admitted": 0}


def plan_local(job: Path, deadline: str | None, probe: bool, form: OutputForm) -> None:
    """Print what a submission would be told now; exit code 0 if it would be admitted, else 3."""
    document = ask_server(job, deadline, probe)
    if document is None:
        document = rehearse_here(job, deadline, probe)
    if not form.write(document):
        print_forecast(document)
    raise typer.Exit(EXIT_CODES.get(document["answer"], 3))


def ask_server(job: Path, deadline: str | None, probe: bool) -> dict[str, Any] | None:
    """The server's word, or None where no server answers; it measures unknown code on devices that no promise needs."""
    from springtide.client.client import Client, load_job

    project = load_job(job, deadline=deadline)
    try:
        with Client() as client:
            return client.plan(project, probe)
    except ServerError:
        if has_server():
            raise
        return None


def rehearse_here(job: Path, deadline: str | None, probe: bool) -> dict[str, Any]:
    """What a server on this machine would say with nothing else to do; speeds measured earlier are used."""
    from springtide.client.client import load_job
    from springtide.control.offline_plan import plan_offline
    from springtide.control.storage.state_dir import find_home

    project = load_job(job, deadline=deadline)
    return plan_offline(find_home(), project.job, project.pack(), probe, tell)


def print_forecast(document: dict[str, Any]) -> None:
    """The answer, how each share would do, and the plan."""
    print(f"{document['answer']} [{document['reason']}]: {document['sentence']}")
    rows = (
        (
            str(one["share"]),
            f"{one['steps_per_s']:.2f}",
            f"{one['planned_steps_per_s']:.2f}",
            show_seconds(one["alone_s"]),
        )
        for one in document["shares"]
    )
    if document["shares"]:
        print_table(("DEVICES", "STEPS/S", "PLANNED WITH", "ALONE IT TAKES"), rows)
    for segment in document["plan"]:
        plural = "s" if segment["share"] != 1 else ""
        print(f"plan: from {segment['from']} on {segment['share']} device{plural}")
    if document["cost_usd"] is not None:
        print(f"cost: at least {document['cost_usd']:.2f} USD")
    for offer in document["offers"]:
        what = "all its work" if offer["kind"] == "deadline" else f"{offer['steps']} steps"
        print(f"would be accepted: {what} by {offer['deadline']} (in {show_seconds(offer['deadline_in_s'])})")
