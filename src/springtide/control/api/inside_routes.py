"""What one needs to work inside a running job, for its owner: its folder, its variables, its processes, its user.

Nothing is run here: `springtide shell`, `exec` and `stack` do that on the job's machine, with the rights of who calls.
"""

import os
import socket
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request

from springtide.control.api.api import Api
from springtide.control.api.requests import JobInPath
from springtide.control.scheduling.instructions import make_spec
from springtide.control.storage.records import JobRecord, UserRecord
from springtide.errors import ConflictError
from springtide.executors.local.jobs import environment
from springtide.executors.local.jobs.places import find_host
from springtide.executors.protocol import Running


def add_inside_routes(app: FastAPI, api: Api) -> None:
    """Looking inside running jobs."""

    @app.get("/api/v1/jobs/{job}/inside", tags=["jobs"])
    async def look_inside(request: Request, job: JobInPath) -> dict[str, Any]:
        """The folder, variables (secrets too) and processes of a running job, for its owner only."""
        record = check_inside(api.find_job(job, request.state.user), request.state.user)
        running = await api.call(api.reconciler.executor.running)
        found = next((one for one in running if one.job == record.id), None)
        found = found or Running(job=record.id, generation=0, devices=record.devices, state="starting")
        run_as = api.store.find_run_as(record.owner)
        machines = list_machines(found, socket.gethostname())
        told = {"schema": 1, "job": record.id, "name": record.name, "pids": list(found.pids), "machines": machines}
        return told | describe(api, record, run_as)


def check_inside(record: JobRecord, user: UserRecord) -> JobRecord:
    """The job, if this user may enter it and there is something to enter."""
    if record.owner != user.id:
        raise ConflictError(f"{record.name} is a job of {record.user}; only they can enter it: their secrets are there")
    if not record.active:
        told = f"{record.name} has ended ({record.state}); nothing runs in it any more"
        raise ConflictError(f"{told}: see springtide logs {record.name}, springtide ls {record.name}")
    if not record.devices:
        raise ConflictError(f"{record.name} holds no device now ({record.state}); see springtide why {record.name}")
    return record


def list_machines(running: Running, here: str) -> list[dict[str, Any]]:
    """The machines on which a job's processes are, with their devices there; `here` is the server's own."""
    machines: dict[str, dict[str, Any]] = {}
    for device in running.devices:
        host = find_host(device) or here
        machine = machines.setdefault(host, {"host": host, "devices": [], "visible_devices": [], "pids": []})
        machine["devices"].append(device)
        machine["visible_devices"] += [uuid] if (uuid := running.uuids.get(device)) else []
    for pid, device in zip(running.pids, running.pid_devices, strict=False):
        if (found := machines.get(find_host(device) or here)) is not None:
            found["pids"].append(pid)
    return list(machines.values())


def describe(api: Api, record: JobRecord, run_as: str | None) -> dict[str, Any]:
    """Where a job works, with what, and as whom."""
    spec = make_spec(record, api.context.state_dir, run_as)
    variables = {
        **environment.allow(os.environ),
        **environment.find_home(spec),
        **environment.choose_early(spec),
        **environment.choose_own(spec),
        **environment.read_secrets(spec),
        **environment.name_folders(spec),
    }
    return {
        "host": socket.gethostname(),
        "folder": str(Path(spec.folder)),
        "environment": variables,
        "run_as": run_as,
        "uid": os.geteuid(),
        "devices": list(record.devices),
    }
