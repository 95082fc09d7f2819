"""Folders of jobs that the store does not know: after an older backup was restored, or a database was lost.

They may hold somebody's only weights, so nothing removes them but `springtide gc --orphans`; `springtide doctor
--repair` makes jobs of them again.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.job_manifests import JobManifest, read_manifest
from springtide.control.storage.places.checkpoint_places import find_folder
from springtide.control.storage.private_paths import list_inside
from springtide.control.storage.records import EventRecord, JobRecord
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.job_states import JobState
from springtide.errors import StateError
from springtide.executors.local.jobs.checkpoint_folder import CheckpointFolder

MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Orphan:
    """The folder of an unknown job, with its own account of itself or why there is none."""

    folder: Path
    manifest: JobManifest | None = None
    problem: str = ""


def find_orphans(state_dir: StateDir, known: Collection[str]) -> list[Orphan]:
    """The folders of jobs that are not known, by name."""
    names = [name for name, is_folder in list_inside(state_dir.root, state_dir.jobs).items() if is_folder]
    return [examine(state_dir, state_dir.jobs / name) for name in names if name not in known]


def examine(state_dir: StateDir, folder: Path) -> Orphan:
    """An unknown folder with what it says of itself."""
    try:
        return Orphan(folder, read_manifest(state_dir, folder))
    except StateError as error:
        return Orphan(folder, problem=str(error))


def check_not_lost(state_dir: StateDir, store: Store) -> None:
    """Refuse a store that never knew a job beside the folders of some: it is not the one that belongs here."""
    if store.next_seq() > 1:
        return
    orphans = find_orphans(state_dir, ())
    if orphans:
        named = ", ".join(one.folder.name for one in orphans[:MOST_NAMED])
        more = f" and {len(orphans) - MOST_NAMED} more" if len(orphans) > MOST_NAMED else ""
        raise StateError(
            f"the database knows no job, but {state_dir.jobs} holds the folders of {len(orphans)} ({named}{more}): it "
            "was lost or replaced. Put a backup back with: springtide restore FILE; or make jobs of the folders with: "
            "springtide doctor --repair; or leave them as they are with: springtide serve --keep-orphans"
        )


def adopt(state_dir: StateDir, store: Store, now_s: float) -> tuple[list[JobRecord], list[Orphan]]:
    """Make jobs of unknown folders again; returns those, and the folders that do not say enough of themselves."""
    orphans = find_orphans(state_dir, {outcome.id for outcome in store.list_outcomes()})
    told = [orphan.manifest for orphan in orphans if orphan.manifest is not None]
    told.sort(key=lambda manifest: (manifest.record.submitted_s, manifest.record.id))
    adopted: list[JobRecord] = []
    for number, manifest in enumerate(told, start=store.next_seq()):
        record = replace(end_lost(state_dir, manifest, now_s), seq=number)
        sentence = f"found on disk as {manifest.record.state} and taken back; the database did not know it"
        store.remember_owner(record.owner, record.user, manifest.run_as)
        store.write(Batch(jobs={record.id: record}, events=[EventRecord(now_s, "adopted", sentence, record.id)]))
        adopted.append(record)
    return adopted, [orphan for orphan in orphans if orphan.manifest is None]


def end_lost(state_dir: StateDir, manifest: JobManifest, now_s: float) -> JobRecord:
    """A job as it is taken back: as it ended, or else cancelled, from where it can go on with its last checkpoint."""
    record = manifest.record
    if not record.active:
        return record
    try:
        step = CheckpointFolder(find_folder(record.spec, state_dir, record.id), manifest.run_as).find_step()
    except OSError:  # it is looked for again when the job is resumed
        step = record.step
    return replace(
        record,
        state=JobState.CANCELLED,
        reason="adopted",
        sentence=f"cancelled: its records were lost while it was {record.state}",
        finished_s=now_s,
        step=max(0, step),
        devices=(),
        plan=None,
        promised=False,
        endangered=False,
        conditions=(),
        predicted_s=None,
    )
