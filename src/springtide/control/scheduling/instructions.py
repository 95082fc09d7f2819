"""From a decision to instructions: what the executor must be told when a job's devices change."""

from springtide.control.scheduling.live_jobs import PROBE_S, PROBE_STEPS
from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir
from springtide.executors.protocol import Cancel, CheckpointPolicy, Instruction, JobSpec, Probe, Resize, Start, Stop


def make_spec(record: JobRecord, state_dir: StateDir, run_as: str | None, scratch: bool = False) -> JobSpec:
    """All that workers need to know; a probe writes to scratch of its own, so that none goes on where one ended."""
    job, paths = record.spec, state_dir.list_paths(record.id)
    aside = paths.scratch / str(record.generation + 1)
    checkpoints = aside / "checkpoints" if scratch else job.checkpoint.dir or paths.checkpoints
    return JobSpec(
        argv=job.words,
        folder=str(paths.code / record.archive),
        checkpoint=CheckpointPolicy(
            str(checkpoints),
            job.checkpoint.every_s,
            job.checkpoint.keep,
            not scratch and job.checkpoint.dir is not None,
        ),
        output_dir=str(aside / "output" if scratch else paths.output),
        log_dir=str(aside / "logs" if scratch else paths.logs),
        home_dir=str(state_dir.job_folder(record.id)),
        python=job.python,
        env=job.env,
        secrets_file=str(paths.secrets_file) if job.secrets else None,
        logical_workers=job.logical_workers,
        expected_workers=record.logical_workers,
        determinism=job.determinism,
        elastic=job.elastic,
        steps=job.steps,
        retries=job.retry.max,
        run_as=run_as,
        patience_s=job.patience_s,
        allow_code_change=job.checkpoint.allow_code_change,
    )


def make_change(
    record: JobRecord, devices: tuple[str, ...], workers: tuple[int, ...], state_dir: StateDir, run_as: str | None
) -> Instruction:
    """The instruction that takes a job from the devices in its record to others; its generation is the next.

    `workers` are the logical workers of each device; empty: spread evenly.
    """
    if not devices:
        return make_stop(record, "preempted")
    job, generation = record.id, record.generation + 1
    key = f"{job}.{generation}"
    if record.devices:
        return Resize(job=job, generation=generation, key=key, devices=devices, workers=workers)
    spec = make_spec(record, state_dir, run_as)
    return Start(job=job, generation=generation, key=key, spec=spec, devices=devices, workers=workers)


def make_stop(record: JobRecord, reason: str, grace_s: float | None = None) -> Stop:
    """The instruction that takes all devices from a job, after a checkpoint if the grace is long enough for one."""
    generation = record.generation + 1
    return Stop(job=record.id, generation=generation, key=f"{record.id}.{generation}", reason=reason, grace_s=grace_s)


def make_probe(record: JobRecord, devices: tuple[str, ...], state_dir: StateDir, run_as: str | None) -> Probe:
    """The instruction that measures a job on these devices."""
    generation = record.generation + 1
    return Probe(
        job=record.id,
        generation=generation,
        key=f"{record.id}.{generation}",
        spec=make_spec(record, state_dir, run_as, scratch=True),
        devices=devices,
        max_steps=PROBE_STEPS,
        max_s=PROBE_S,
    )


def make_cancel(job_id: str, generation: int, reason: str) -> Cancel:
    """The instruction that ends a job for good."""
    return Cancel(job=job_id, generation=generation, key=f"{job_id}.{generation}", reason=reason)
