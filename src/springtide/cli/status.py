"""`springtide status`: all that is known of one job."""

from typing import TYPE_CHECKING

import typer

from springtide.cli.connections import choose_job, connect
from springtide.cli.outputs import OUTPUT, OutputOption, count_devices, list_rent, show_seconds, show_time
from springtide.cli.ps import show_slack

if TYPE_CHECKING:
    from springtide.client.replies import JobInfo


def run(
    job: str = typer.Argument(None, metavar="[JOB]", help="An id, a name or its beginning. Default: the newest."),
    output: OutputOption = OUTPUT,
) -> None:
    """Show one job: its answer, progress, plan, conditions and offers.

    Example:

      springtide status digits-cnn
    """
    with connect() as client:
        found = client.job(choose_job(client, job))
    if not output.write(found.document):
        print_job(found)


def print_job(job: "JobInfo") -> None:
    """A job as a list of facts."""
    print(f"{job.name} ({job.id}) of {job.user}: {job.state}")
    print(f"  {job.sentence}")
    facts = {
        "progress": f"step {job.step}" + (f" of {job.total_steps}" if job.total_steps else ""),
        "devices": ", ".join(job.devices) or "none now",
        "deadline": "none: best effort" if job.best_effort else show_time(job.deadline),
        "expected": show_time(job.predicted_finish),
        "slack": show_slack(job),
        "finished": show_time(job.finished_at),
        "rescales": f"{job.rescales} (paused {show_seconds(job.pause_s)} in all)",
        "faults": f"{job.faults} ({job.lost_steps} steps done twice)",
        "used": f"{job.device_s:.1f} device-seconds",
        "files": find_files(job.id),
    }
    for name, value in facts.items():
        print(f"  {name:<10} {value}")
    for segment in job.plan:
        print(f"  plan       from {show_time(segment.start)}: {count_devices(segment.share)}")
    for condition in job.conditions:
        print(f"  {condition.kind}: {condition.sentence}")
    for offer in job.offers:
        print(f"  offer {offer.id} ({offer.state}): {offer.sentence}")
    for line in list_rent(job.rent):
        print(f"  {line}")


def find_files(job_id: str) -> str:
    """Where a job's checkpoints, output and logs lie, if they lie on this machine."""
    from springtide.control.storage.state_dir import find_home

    folder = find_home().job_folder(job_id)
    return str(folder) if folder.is_dir() else "on the server's machine"
