"""For SkyPilot: plans as tasks, a short probe that measures a job on the cheapest machines, and a run-time estimator.

SkyPilot is neither imported nor needed. A mix of two types has no SkyPilot form and is refused. Spot tasks keep their
checkpoints in a bucket, so that a job goes on after its machines were taken away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from springtide.cloud.catalog import Machine, normalise
from springtide.cloud.plans import HOUR_S, RentalPlan, Work
from springtide.cloud.splitting import cut_alone
from springtide.cloud.step_times import Speeds, measure_speeds
from springtide.errors import CatalogError
from springtide.throughput.tables.points import read_points

PACKAGE = "springtide"
WHEELS = "/tmp/springtide"  # where a wheel lies on a rented machine
PROBE_S = 600.0
# Provisioning and installing are paid as well; SkyPilot stops the machine after the idle minutes.
PROBE_PAID_S = PROBE_S + 600.0
IDLE_MINUTES = 5
STORES = {"aws": "s3", "gcp": "gcs", "azure": "azure"}
CHECKPOINTS = "/checkpoints"
LONGEST_BUCKET = 63
STARTUP_S = 300.0


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """What a task runs: the job's name, its command, its folder, and the bucket of its checkpoints.

    Without one a spot task gets a bucket named by the job and its `owner`, who tells the buckets of users apart.
    """

    name: str
    command: str
    workdir: str = "."
    bucket: str | None = None
    owner: str = ""
    #: A wheel of ours that is sent with it; None: the package comes from an index.
    wheel: str | None = None

    def install(self) -> dict[str, Any]:
        """How a rented machine gets springtide."""
        if self.wheel is None:
            return {"setup": f"pip install '{PACKAGE}[train]'"}
        place = f"{WHEELS}/{PurePosixPath(self.wheel).name}"
        return {"file_mounts": {place: self.wheel}, "setup": f"pip install '{place}[train]'"}


def export_plan(plan: RentalPlan, launch: TaskLaunch) -> dict[str, Any]:
    """A SkyPilot task of a plan, as the document its YAML holds."""
    if len(plan.parts) > 1:
        raise CatalogError(
            f"plan {plan.name!r} mixes machine types, and a SkyPilot task holds one; choose another with --no-mixes"
        )
    part = plan.parts[0]
    resources = describe_resources(part.machine, plan.spot)
    if plan.spot:
        resources["job_recovery"] = "EAGER_NEXT_REGION"
    task: dict[str, Any] = {"name": launch.name, "workdir": launch.workdir, "num_nodes": part.nodes}
    if plan.spot or launch.bucket is not None:
        task |= describe_checkpoints(plan, launch)
    mounts = task.get("file_mounts", {}) | launch.install().get("file_mounts", {})
    task |= {"resources": resources, **launch.install(), "run": _write_run(part.nodes, part, launch)}
    return task | ({"file_mounts": mounts} if mounts else {})


def _write_run(nodes: int, part: Any, launch: TaskLaunch) -> str:
    """The command on every device of every node, with the addresses SkyPilot hands to a task."""
    words = launch.command.split()
    script = " ".join(words[1:]) if words and words[0].startswith("python") else launch.command
    return (
        f"torchrun --nnodes {nodes} --nproc-per-node {int(part.machine.devices)} --node-rank $SKYPILOT_NODE_RANK "
        '--master-addr $(echo "$SKYPILOT_NODE_IPS" | head -n1) --master-port 29500 '
        f"{script}"
    )


def describe_checkpoints(plan: RentalPlan, launch: TaskLaunch) -> dict[str, Any]:
    """The bucket of a task's checkpoints, mounted on every node, and how often they are written.

    Checkpoints are renamed when complete, which SkyPilot's plain MOUNT cannot do; MOUNT_CACHED can.
    """
    bucket = launch.bucket or name_bucket(launch)
    store = STORES[plan.parts[0].machine.cloud]
    envs = {"SPRINGTIDE_CHECKPOINT_DIR": f"{CHECKPOINTS}/{launch.name}"}
    if plan.checkpoint_every_s is not None:
        envs["SPRINGTIDE_CHECKPOINT_EVERY_S"] = f"{plan.checkpoint_every_s:.0f}"
    mount = {"name": bucket, "store": store, "mode": "MOUNT_CACHED"}
    return {"envs": envs, "file_mounts": {CHECKPOINTS: mount}}


def name_bucket(launch: TaskLaunch) -> str:
    """A bucket's name: the job, and ten letters of a hash, because bucket names are shared by the whole cloud."""
    letters = sha256(f"{launch.owner}/{launch.name}".encode()).hexdigest()[:10]
    plain = "".join(letter if letter.isalnum() else "-" for letter in launch.name.lower()).strip("-")
    return f"springtide-{plain[: LONGEST_BUCKET - 22]}-{letters}"


def describe_resources(machine: Machine, spot: bool) -> dict[str, Any]:
    """The resources of one node."""
    return {"infra": f"{machine.cloud}/{machine.region}", "instance_type": machine.instance_type, "use_spot": spot}


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """Tasks that measure a job for ten minutes each, and what they cost together at most."""

    tasks: tuple[dict[str, Any], ...]
    machines: tuple[str, ...]
    cost_usd: float


def export_probe(machines: Sequence[Machine], launch: TaskLaunch) -> ProbeTask:
    """A probe on each of these machines, on demand, so that none is taken away while it measures."""
    hourly = [machine.on_demand_usd_per_h or 0.0 for machine in machines]
    words = launch.command.split()
    script = " ".join(words[1:]) if words and words[0].startswith("python") else launch.command
    tasks = []
    for machine in machines:
        out = f"{launch.name}-{machine.instance_type}.csv"
        options = f"--seconds {PROBE_S:.0f} --model {launch.name} --device-type {machine.device_type!r} --out {out}"
        # The machine is gone soon after: what was measured stays in the log.
        run = f"springtide profile {options} -- {script} && cat {out}"
        resources = describe_resources(machine, spot=False) | {"autostop": {"idle_minutes": IDLE_MINUTES, "down": True}}
        name = f"{launch.name}-probe-{machine.instance_type.replace('.', '-').replace('_', '-').lower()}"
        task = {"name": name, "workdir": launch.workdir, "resources": resources, **launch.install(), "run": run}
        tasks.append(task)
    names = tuple(f"{machine.instance_type} ({machine.region})" for machine in machines)
    return ProbeTask(tuple(tasks), names, sum(hourly) * PROBE_PAID_S / HOUR_S)


def estimate_run_time(
    points: str | Path, steps: int, global_batch: int, model: str | None = None, num_nodes: int = 1
) -> Callable[[Any], float]:
    """A function from SkyPilot resources to the seconds a job takes on so many nodes of them, for a task's estimator:

    task.set_time_estimator(estimate_run_time("points.csv", steps=90_000, global_batch=1024))
    """
    measured = read_points(Path(points))
    name = model or measured[0].layout.model
    speeds = measure_speeds(measured, [], name)
    work = Work(name, steps, global_batch)

    def estimate(resources: Any) -> float:
        return _estimate(speeds, work, num_nodes, resources)

    return estimate


def _estimate(speeds: Speeds, work: Work, nodes: int, resources: Any) -> float:
    accelerators = dict(resources.accelerators or {})
    speed = speeds.get(normalise(str(getattr(resources, "instance_type", "") or "")))
    for device_type in accelerators:
        speed = speed or speeds.get(normalise(device_type))
    if speed is None or not accelerators:
        known = ", ".join(found.device_type for found in speeds.values())
        raise CatalogError(f"resources {resources} have no measured device type; there are points of {known}")
    per_node = int(next(iter(accelerators.values())))
    cut = cut_alone(speed, np.array([float(nodes)]), per_node, work)
    return STARTUP_S + work.steps * float(np.exp(cut.log_step[0]))
