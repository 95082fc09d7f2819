"""`springtide plan`: what it would take, when it would finish and what it would cost. Nothing is started.

Three modes: what this platform would answer (`plan_local`), what to rent (`--cloud`: `plan_cloud`), and whether a job
on rented machines should move (`--cloud --running`: `replan`).
"""

from pathlib import Path
from time import time
from typing import Annotated

import typer

from springtide.cli.option_groups import flatten
from springtide.cli.outputs import OutputForm
from springtide.cli.plan_options import (
    JobOptions,
    LimitOptions,
    MarketOptions,
    ResultOptions,
    RunningOptions,
    describe_job,
    read_limits,
)
from springtide.errors import InputError


@flatten
def run(
    market: MarketOptions,
    about: JobOptions,
    wanted: LimitOptions,
    result: ResultOptions,
    running: RunningOptions,
    form: OutputForm,
    job: Annotated[Path | None, typer.Argument(metavar="[JOB.yaml]", help="A job file.")] = None,
    probe: Annotated[bool, typer.Option("--probe", help="Without --cloud: run unknown code for at most 15 s.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the file. Repeat for more."),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="Set an environment variable of the job. Repeat for more."),
    ] = None,
) -> None:
    """Plan a job: the best machines with time, cost and the chance to meet the deadline.

    Without --cloud: what this platform would answer to the job now; exit code 3 unless it would be admitted.

    Examples:

      springtide plan job.yaml --probe

      springtide plan --cloud aws --points points.csv --steps 90000 --global-batch 256 --deadline 6h --spot

      springtide plan job.yaml --cloud aws,gcp --points points.csv --budget 50 --pareto plans.png
    """
    from springtide.core.job_file_parts.job_settings import JobSettings

    if market.cloud is None:
        if job is None:
            raise InputError("nothing to plan: give a job file, or say where to rent with --cloud aws[,gcp,azure]")
        from springtide.cli.plan_local import plan_local

        plan_local(job, wanted.deadline, probe, form, JobSettings(settings or (), env or ()))
        return
    from springtide.cli.plan_cloud import plan_rental
    from springtide.cli.replan import plan_move
    from springtide.client.job_folders import load_job
    from springtide.core.job_file import JobFile

    folder = load_job(JobFile(run="python train.py") if job is None else job, JobSettings(settings or (), env or ()))
    known = describe_job(folder, about)
    limits = read_limits(wanted, folder.job, time())
    catalog = market.load(folder.job.device_types or ())
    if running.plan_file is None:
        plan_rental(known, catalog, limits, result, form)
    else:
        plan_move(running, known, catalog, limits, form)
