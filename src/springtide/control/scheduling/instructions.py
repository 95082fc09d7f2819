"""From a decision to instructions: what the executor must be told when a job's devices change."""

from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir
from springtide.core.job_file import JobFile
from springtide.executors.protocol import (
    Cancel,
    CheckpointPolicy,
    Instruction,
    JobSpec,
    Probe,
    Resize,
    Start,
    Stop,
)

PROBE_STEPS = 30
PROBE_S = 15.0


def make_spec(record: JobRecord, home: StateDir, scratch: bool = False, run_as: str | None = None) -> JobSpec:
    """All that workers need to know; a probe writes to scratch of its own, so that none goes on where one ended."""
    job = JobFile.model_validate(record.spec)
    aside = home.scratch(record.id) / str(record.generation + 1)
    checkpoints = aside / "checkpoints" if scratch else job.checkpoint.dir or home.checkpoints(record.id)
    secrets = home.secrets_file(record.id)
    return JobSpec(
        argv=job.words,
        folder=str(home.code / record.archive),
        checkpoint=CheckpointPolicy(str(checkpoints), job.checkpoint.every_s, job.checkpoint.keep),
        output_dir=str(aside / "output" if scratch else home.output(record.id)),
        log_dir=str(aside / "logs" if scratch else home.logs(record.id)),
        python=job.python,
        env=job.env,
        secrets_file=str(secrets) if job.secrets else None,
        logical_workers=job.logical_workers,
        expected_workers=record.logical_workers,
        determinism=job.determinism,
        elastic=job.elastic,
        steps=job.steps,
        retries=job.retry.max,
        run_as=run_as,
        allow_code_change=job.checkpoint.allow_code_change,
    )


def make_order(
    record: JobRecord,
    before: tuple[str, ...],
    after: tuple[str, ...],
    workers: tuple[int, ...],
    home: StateDir,
    run_as: str | None = None,
) -> Instruction:
    """The instruction that takes a job from some devices to others; its generation is the record's next.

    `workers` are the logical workers of each device; empty: spread evenly.
    """
    generation = record.generation + 1
    key = f"{record.id}.{generation}"
    if not after:
        return make_stop(record, "preempted")
    if before:
        return Resize(job=record.id, generation=generation, key=key, devices=after, workers=workers)
    spec = make_spec(record, home, run_as=run_as)
    return Start(job=record.id, generation=generation, key=key, spec=spec, devices=after, workers=workers)


def make_stop(record: JobRecord, reason: str, grace_s: float | None = None) -> Stop:
    """The instruction that takes all devices from a job, after a checkpoint if the grace is long enough for one."""
    generation = record.generation + 1
    return Stop(job=record.id, generation=generation, key=f"{record.id}.{generation}", reason=reason, grace_s=grace_s)


def make_probe(record: JobRecord, devices: tuple[str, ...], home: StateDir, run_as: str | None = None) -> Probe:
    """The instruction that measures a job on these devices."""
    generation = record.generation + 1
    return Probe(
        job=record.id,
        generation=generation,
        key=f"{record.id}.{generation}",
        spec=make_spec(record, home, scratch=True, run_as=run_as),
        devices=devices,
        max_steps=PROBE_STEPS,
        max_s=PROBE_S,
    )


def make_cancel(job_id: str, generation: int, reason: str) -> Cancel:
    """The instruction that ends a job for good."""
    return Cancel(job=job_id, generation=generation, key=f"{job_id}.{generation}", reason=reason)
