"""A plan without a server: the same operations and policy, on a world with idle devices, that leaves nothing behind.

Works on a copy of the store in memory, so speeds that were measured are known and nothing is written. A probe runs in
a throw-away state directory, whose agent ends with it.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from springtide.control.api import documents
from springtide.control.api.entrance.tokens import find_login
from springtide.control.clock import SystemClocks
from springtide.control.executor_factory import ExecutorHandle, list_inventory, open_executor
from springtide.control.scheduling.operations import Operations
from springtide.control.scheduling.reconciler import Reconciler
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.scheduling.submissions import Submission
from springtide.control.storage.archives import unpack
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.archive_format import Archive
from springtide.core.job_file import JobFile
from springtide.core.job_states import JobState
from springtide.errors import JobError
from springtide.executors.fake import FakeExecutor
from springtide.executors.local.discovery import discover

PROBE_PATIENCE_S = 120.0


def plan_offline(
    state_dir: StateDir,
    job: JobFile,
    archive: Archive,
    probe: bool,
    tell: Callable[[str], None],
    options: ServerOptions | None = None,
) -> dict[str, Any]:
    """The document of what a submission would be told on this machine with nothing else to do."""
    with tempfile.TemporaryDirectory(prefix="springtide-plan-") as folder:
        scratch = StateDir(Path(folder)).make()
        unpack(archive.data, scratch.code / archive.code_hash)
        submission = Submission(job, archive.code_hash, find_login())
        idle = ExecutorHandle(FakeExecutor(), list_inventory(discover().devices), lambda: None)
        with open_reconciler(scratch, idle, options or ServerOptions()) as reconciler:
            copy_speeds(state_dir, reconciler)
            told = Operations(reconciler).plan(submission)
            if told.unmeasured and probe:
                tell("measuring its speed (at most 15 s after the first step)")
                measure(reconciler, scratch, submission)
                reconciler.read_clock()
                told = Operations(reconciler).plan(submission)
                keep_speeds(state_dir, reconciler)
            return documents.write_forecast(told, reconciler.now_s)


@contextmanager
def open_reconciler(state_dir: StateDir, engine: ExecutorHandle, options: ServerOptions) -> Iterator[Reconciler]:
    """A reconciler on a store of its own."""
    store = Store(f"sqlite:///{state_dir.database}")
    try:
        yield Reconciler(store, engine.executor, engine.inventory, state_dir, SystemClocks(), options)
    finally:
        store.close()


def copy_speeds(state_dir: StateDir, reconciler: Reconciler) -> None:
    """Take over every speed that was ever measured here."""
    if not state_dir.database.exists():
        return
    known = Store(f"sqlite:///{state_dir.database}")
    try:
        for speed in known.speeds():
            reconciler.context.staging.put_speed(speed)
    finally:
        known.close()


def keep_speeds(state_dir: StateDir, reconciler: Reconciler) -> None:
    """Remember what a probe has measured, so that a submission need not measure again."""
    measured = dict(reconciler.context.staging.batch.speeds)
    store = Store(f"sqlite:///{state_dir.make().database}")
    try:
        store.write(Batch(speeds=measured))
    finally:
        store.close()


def measure(reconciler: Reconciler, scratch: StateDir, submission: Submission) -> None:
    """Run a probe in a throw-away agent; what it measures goes into the reconciler's records."""
    engine = open_executor("local", scratch, None)
    probing = StateDir(scratch.root / "probing").make()
    unpack_again(scratch, probing, submission.archive)
    try:
        with open_reconciler(probing, engine, reconciler.context.options) as worker:
            job_id = Operations(worker).measure(submission)
            until_s = time.monotonic() + PROBE_PATIENCE_S
            while (worker.store.job(job_id) or worker.context.staging.jobs[job_id]).state is JobState.PROBING:
                if time.monotonic() > until_s:
                    raise JobError(f"the probe did not end within {PROBE_PATIENCE_S:g} s")
                worker.step(0.05)
            record = worker.store.job(job_id)
            if record is not None and record.state is JobState.FAILED:
                raise JobError(f"the probe failed: {record.sentence}")
            for speed in worker.store.speeds():
                reconciler.context.staging.put_speed(speed)
    finally:
        engine.close()


def unpack_again(source: StateDir, target: StateDir, code_hash: str) -> None:
    """The same code in another state directory."""
    (target.code / code_hash).symlink_to(source.code / code_hash, target_is_directory=True)
