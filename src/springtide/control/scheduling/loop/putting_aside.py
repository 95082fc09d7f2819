"""What cannot be worked in, restored or read is put aside: kept for the operator, its job held; all else goes on."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from springtide.control.scheduling import transitions
from springtide.control.scheduling.instructions import make_stop
from springtide.control.scheduling.loop.health import show_safely
from springtide.control.scheduling.loop.transactions import attempt
from springtide.control.storage.database.databases import is_unavailable
from springtide.control.storage.records import InstructionRecord
from springtide.control.storage.staging import Effects
from springtide.core.job_states import JobState
from springtide.executors.protocol import Event, Finished

if TYPE_CHECKING:
    from springtide.control.scheduling.reconciler import Reconciler


class PuttingAside:
    """What a reconciler puts aside, and what it does not try again meanwhile."""

    def __init__(self, reconciler: "Reconciler") -> None:
        self.reconciler = reconciler
        #: What was put aside and would be again: a kind of work on a job, and the state in which it failed.
        self.states: dict[tuple[str, str], JobState | None] = {}

    def leave_out(self, job_id: str, error: Exception) -> None:
        """A job cannot be restored: it is held, or, if that cannot be stored, as good as one that cannot be read."""
        self.put_aside("recover", job_id, job_id, error)
        if self.find_state(job_id) not in (None, JobState.PAUSED):
            self.reconciler.store.unreadable[job_id] = show_safely(error)
            del self.reconciler.context.staging.jobs[job_id]

    def put_instruction_aside(self, one: InstructionRecord, error: Exception) -> None:
        """An instruction cannot be read, so nobody knows where its job is: it stops, and waits for its owner."""
        staging = self.reconciler.context.staging
        staging.batch.sent.append((one.job, one.generation))
        before = staging.jobs.get(one.job)
        self.put_aside("recover", one.job, one.body, error)
        record = staging.jobs.get(one.job)
        if record is not None and before is not None and record.generation == before.generation:
            stop = make_stop(record, transitions.QUARANTINED)  # the one that cannot be read may have been that
            staging.stage(Effects(replace(record, generation=stop.generation), (), stop))

    def attempt_for(self, kind: str, job_id: str, action: Callable[[], None], singly: bool) -> None:
        """Do what time or the executor brings for one job; what fails is put aside with it, and not tried again as
        long as the job is in the same state.
        """
        known = (kind, job_id)
        if known not in self.states or self.states[known] is not self.find_state(job_id):
            attempt(self.reconciler, action, singly, partial(self.put_job_aside, kind, job_id))

    def put_job_aside(self, kind: str, job_id: str, error: Exception) -> None:
        """Something cannot be done for a job: keep that for the operator, and hold the job."""
        self.put_aside(kind, job_id, job_id, error)
        self.states[kind, job_id] = self.find_state(job_id)

    def find_state(self, job_id: str) -> JobState | None:
        """The state of a job as it is now; None if it is none of the active ones."""
        record = self.reconciler.context.staging.jobs.get(job_id)
        return None if record is None else record.state

    def put_event_aside(self, event: Event, error: Exception) -> None:
        """An event cannot be worked in or stored: keep it for the operator, hold its job, never ask for it again."""
        self.reconciler.hear(event.seq)
        self.put_aside(f"event:{event.kind}", event.job or None, event, error, isinstance(event, Finished))

    def put_aside(self, kind: str, job_id: str | None, body: object, error: Exception, finished: bool = False) -> None:
        """Keep for the operator what cannot be worked in, and hold its job; if even that fails, only the former."""
        staging, world, mark = self.reconciler.context.staging, self.reconciler.context.world, self.reconciler.mark()
        self.reconciler.dirty = True
        try:
            if job_id is not None:
                transitions.hold(staging, world, job_id, finished, show_safely(error))
            staging.put_aside(kind, job_id, body, error)
            self.reconciler.commit()
        except Exception as again:
            if is_unavailable(again):
                raise
            self.reconciler.roll_back(mark)
            staging.put_aside(kind, job_id, body, error)
