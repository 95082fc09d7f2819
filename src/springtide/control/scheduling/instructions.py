"""From a decision to instructions: what the executor must be told when a job's devices change."""

import hashlib
import json
from pathlib import Path

from springtide.control.scheduling.live_jobs import PROBE_S, PROBE_STEPS
from springtide.control.storage.places import checkpoint_places
from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir
from springtide.executors.protocol import (
    Cancel,
    CheckpointPolicy,
    Instruction,
    JobPreparation,
    JobSpec,
    Probe,
    Resize,
    Start,
    Stop,
)


def make_spec(record: JobRecord, state_dir: StateDir, run_as: str | None, scratch: bool = False) -> JobSpec:
    """All that workers need to know; all but a probe's log goes to scratch, so that none goes on where one ended."""
    job, paths = record.spec, state_dir.list_paths(record.id)
    aside = paths.scratch / str(record.generation + 1)
    return JobSpec(
        argv=job.words,
        folder=str(find_code_folder(record, state_dir, run_as)),
        checkpoint=make_policy(record, state_dir, aside / "checkpoints" if scratch else None),
        output_dir=str(aside / "output" if scratch else paths.output),
        log_dir=str(paths.logs),
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
        preparation=make_preparation(record, state_dir, run_as),
        outputs=() if scratch else tuple(job.outputs),
        memory_bytes=job.memory_bytes,
    )


def find_code_folder(record: JobRecord, state_dir: StateDir, run_as: str | None) -> Path:
    """Where a job runs: in its code, or in the copy that its setup has changed, one for each code, setup and user."""
    job = record.spec
    if not job.setup_lines:
        return state_dir.code / record.archive
    facts = json.dumps([job.setup_lines, job.python, run_as])
    return state_dir.code / f"{record.archive}~{hashlib.sha256(facts.encode()).hexdigest()[:16]}"


def make_preparation(record: JobRecord, state_dir: StateDir, run_as: str | None) -> JobPreparation | None:
    """What is done before a job starts; nothing for most."""
    job, home = record.spec, state_dir.job_folder(record.id)
    if not job.setup_lines and not job.inputs:
        return None
    # what another user fetches is that user's own
    cache = state_dir.inputs if run_as is None else home / "fetched"
    source = str(state_dir.code / record.archive)
    return JobPreparation(source, str(home / "inputs"), str(cache), job.setup_lines, job.inputs)


def make_policy(record: JobRecord, state_dir: StateDir, aside: Path | None) -> CheckpointPolicy:
    """Where a job's checkpoints go; those of a probe `aside`, and nowhere else."""
    job = record.spec.checkpoint
    if aside is not None:
        return CheckpointPolicy(str(aside), job.every_s, job.keep)
    folder = checkpoint_places.find_folder(record.spec, state_dir, record.id)
    url = checkpoint_places.find_url(record.spec, state_dir, record.id)
    return CheckpointPolicy(
        str(folder),
        job.every_s,
        job.keep,
        is_given=job.dir is not None and url is None,
        url=url or "",
        generation=record.generation + 1 if checkpoint_places.is_shared(record.spec, state_dir) else 0,
        saved_step=record.saved_step if record.spec.elastic else 0,
        output_url=state_dir.job_url(record.id, "output") or "",
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
    return make_stop_of(record.id, record.generation + 1, reason, grace_s)


def make_stop_of(job_id: str, generation: int, reason: str, grace_s: float | None = None) -> Stop:
    """The same, of a job whose record is not at hand."""
    return Stop(job=job_id, generation=generation, key=f"{job_id}.{generation}", reason=reason, grace_s=grace_s)


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
