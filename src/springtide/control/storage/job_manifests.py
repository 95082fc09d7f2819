"""A job's own account in its folder, `job.json`: enough to know it again should the database be lost or restored.

Written by the server when a job is submitted and whenever its state changes, a moment after the database; never read
but by `springtide doctor --repair`. What stands there was written by the server alone, or it is not believed.
"""

import json
import logging
import os
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from springtide.control.storage.database.rows import load_job, write_job
from springtide.control.storage.private_paths import open_plain
from springtide.control.storage.records import JobRecord
from springtide.control.storage.state_dir import StateDir, write_private
from springtide.control.storage.store import Store
from springtide.core.job_states import JobState
from springtide.errors import StateError

NAME = "job.json"
SCHEMA = 1
MOST_BYTES = 4 << 20
PAUSE_S = 0.2  # before writing: a job's first states follow each other, and whoever waits for an answer comes first
logger = logging.getLogger("springtide.control")


@dataclass(frozen=True, slots=True)
class JobManifest:
    """A job as its folder tells it, and the system user it runs as."""

    record: JobRecord
    run_as: str | None


def write_manifest(state_dir: StateDir, manifest: JobManifest) -> None:
    """Write a job's account into its folder; others may pass through that to what is theirs."""
    folder = state_dir.job_folder(manifest.record.id)
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    document = {"schema": SCHEMA, "run_as": manifest.run_as, "job": write_job(manifest.record)}
    write_private(folder / NAME, json.dumps(document) + "\n")


def read_manifest(state_dir: StateDir, folder: Path) -> JobManifest:
    """The account in a job's folder; StateError says why there is none that can be believed."""
    try:
        with open_plain(state_dir.root, folder / NAME) as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                raise StateError(f"{NAME} was not written by the server")
            document = json.loads(file.read(MOST_BYTES))
        known = {one.name for one in fields(JobRecord)}
        record = load_job({key: value for key, value in document["job"].items() if key in known})
        run_as = document["run_as"]
    except FileNotFoundError:
        raise StateError(f"it has no {NAME}: its server was older") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"{NAME} cannot be read ({type(error).__name__})") from None
    if record.id != folder.name or not isinstance(run_as, str | None):
        raise StateError(f"{NAME} is of another job")
    return JobManifest(record, run_as)


class ManifestKeeper:
    """Hears of every change of a job's state, and writes it down beside the job, behind the reconciler's back."""

    def __init__(self, state_dir: StateDir, store: Store) -> None:
        self.state_dir = state_dir
        self.store = store
        self.told: dict[str, JobState] = {}
        self.records: queue.SimpleQueue[JobRecord | None] = queue.SimpleQueue()
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self.run, name="manifests")

    def start(self) -> None:
        """Begin, with the jobs that have no account yet."""
        for record in self.store.active_jobs():
            self.told[record.id] = record.state
            if not (self.state_dir.job_folder(record.id) / NAME).exists():
                self.records.put(record)
        self.store.listeners.append(self.hear)
        self.thread.start()

    def hear(self, jobs: Mapping[str, JobRecord]) -> None:
        """Take in jobs that were just stored; those whose state is the same need no new account."""
        for record in jobs.values():
            if self.told.get(record.id) is not record.state:
                self.told[record.id] = record.state
                self.records.put(record)
            if not record.active:
                del self.told[record.id]

    def run(self) -> None:
        """Write until closed, of each job what came last; what cannot be written is written with its next change."""
        is_open = True
        while is_open:
            found = [self.records.get()]
            self.closing.wait(PAUSE_S)
            while not self.records.empty():
                found.append(self.records.get())
            is_open = None not in found
            for record in {one.id: one for one in found if one is not None}.values():
                self.write(record)

    def write(self, record: JobRecord) -> None:
        """Write a job's account, if that can be done now."""
        try:
            write_manifest(self.state_dir, JobManifest(record, self.store.find_run_as(record.owner)))
        except Exception as error:  # of the disk, or of the database that is asked for the user
            logger.warning("the account of job %s could not be written: %s", record.id, error)

    def close(self) -> None:
        """Write what is left, and end."""
        self.store.listeners.remove(self.hear)
        self.closing.set()
        self.records.put(None)
        self.thread.join()
