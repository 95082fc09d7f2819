"""What a server finds when it begins: the clock, the devices, the jobs and the instructions as the store has them."""

import logging

from springtide.control.clock import Anchor, Clock, ClockSource
from springtide.control.scheduling import offers, sentences, transitions
from springtide.control.scheduling.live_jobs import fix_share, look_up, make_job, make_probe_job, needs_probe
from springtide.control.scheduling.live_world import PlatformWorld, rebuild_view
from springtide.control.scheduling.machines import nodes, outside_load
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.storage.records import InstructionRecord, JobRecord
from springtide.control.storage.staging import Staging
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.job_states import JobState
from springtide.executors.protocol import Instruction
from springtide.executors.wire import load_instruction

NO_CODE = "no_code"  # why a job is paused
STREAM = "stream"  # the fact that names the executor whose events the cursor counts
logger = logging.getLogger("springtide.control")


def restore_job(staging: Staging, world: PlatformWorld, record: JobRecord) -> None:
    """Put one job back into the world, as it stood."""
    if record.state is not JobState.PAUSED:
        staging.store.find_run_as(record.owner)  # raises where nobody knows: it would fail in every decision
    if record.waits_for or record.state is JobState.PAUSED:
        return  # it is put before the policy when the others have ended, or its owner lets it go
    inventory, now_s = world.inventory, staging.now_s
    state, facts = record.state, look_up(record, staging.speeds, inventory)
    is_unmeasured = state is JobState.WAITLISTED and needs_probe(record, facts)
    devices, mix = inventory.find_devices(record.devices), inventory.count_types(record.devices)
    if state is JobState.PROBING and devices:
        job = fix_share(make_probe_job(record, inventory, [*mix]), mix)
        world.restore(rebuild_view(record, job, devices, mix, now_s))
    elif state is JobState.OFFERED:
        offers.restore(staging, world, record)
    elif state is JobState.PROBING or is_unmeasured or record.answered_s is None:
        transitions.arrive(staging, world, record)
    elif state in (JobState.ADMITTED, JobState.RUNNING, JobState.WAITLISTED):
        world.restore(rebuild_view(record, make_job(record, facts, inventory), devices, mix, now_s))


def restore_or_hold(staging: Staging, world: PlatformWorld, state_dir: StateDir, record: JobRecord) -> None:
    """Put one job back; without its secrets or its code it waits if it holds nothing: one that runs has both."""
    restore_job(staging, world, record)
    record = staging.jobs[record.id]
    waits = record.state in (JobState.PROBING, JobState.ADMITTED, JobState.WAITLISTED) and not record.waits_for
    if not waits or record.devices:
        return
    if transitions.lacks_secrets(staging, state_dir, record.id):
        transitions.await_secrets(staging, world, record.id)
    elif state_dir.storage is not None and not (state_dir.code / record.archive).is_dir():
        transitions.pause(staging, world, record.id, NO_CODE, sentences.tell_no_code(record.id))


def restore_inventory(inventory: Inventory, store: Store, options: ServerOptions) -> Inventory:
    """The devices as they were when the last server ended: without drained nodes, as slow as others made them."""
    loads = store.fact(outside_load.FACT)
    left = nodes.restore_inventory(inventory, store.fact)
    return outside_load.restore_loads(left, loads, options.outside_load)


def read_unsent(store: Store) -> tuple[list[Instruction], list[tuple[InstructionRecord, Exception]]]:
    """The instructions that are not known to have arrived, in order, and those that cannot be read."""
    unsent, unread = list[Instruction](), list[tuple[InstructionRecord, Exception]]()
    for one in store.list_instructions():
        try:
            unsent.append(load_instruction(one.body))
        except Exception as error:
            logger.exception("an instruction for job %s cannot be read", one.job)
            unread.append((one, error))
    return unsent, unread


def restore_cursor(store: Store, stream: str) -> int:
    """The number of the last event that was worked in; 0 if that was of another executor, whose numbers are others."""
    known = store.fact(STREAM)
    return 0 if stream and known not in (None, stream) else int(store.fact("cursor") or 0)


def restore_clock(store: Store, source: ClockSource) -> Clock:
    """The clock of the last server, continued; never before what was stored last."""
    stored = store.fact("anchor")
    not_before_s = max((event.at_s for event in store.last_events(1)), default=0.0)
    return Clock(source, None if stored is None else Anchor(**stored), not_before_s)
