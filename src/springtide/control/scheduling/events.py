"""What executors report, worked into the records and the world. Returns whether a new decision is called for.

Events may come late, twice, or from a generation that is over; each handler says what it does then.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from springtide.control.clock import ClockSource
from springtide.control.scheduling import effects, expected_ends, job_changes, live_jobs, sentences, speeds, transitions
from springtide.control.scheduling.live_world import PlatformWorld, find_rate
from springtide.control.scheduling.machines import forgotten_nodes, node_drains, nodes, outside_load
from springtide.control.scheduling.transitions import Ending
from springtide.control.storage.records import EventRecord, JobRecord, SpeedRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.control.storage.state_dir import StateDir
from springtide.core.decisions import Decide, Progress
from springtide.core.durations import show_span
from springtide.core.job_states import JobState
from springtide.core.jobs import JobId, Purpose
from springtide.executors.protocol import (
    Checkpointed,
    CheckpointFailing,
    Event,
    Failed,
    Faulted,
    Finished,
    InputsSeen,
    Lagging,
    MachineLoaded,
    NodeForgotten,
    NodeJoined,
    NodeLeaving,
    NodeLost,
    Probed,
    Progressed,
    Resized,
    ScriptInfo,
    Started,
    Stopped,
    Warned,
)

LEARN_AFTER_S = 2.0  # seconds of steps at one share before their speed is taken over
OLD_EVENT_S = 5.0
NO_STEPS = Ending(JobState.FAILED, "no_steps", sentences.NO_STEPS)


@dataclass(slots=True)
class Lap:
    """Where the measurement of a job's speed at one share began."""

    share: int
    step: int
    at_s: float
    #: The boot whose counter `at_s` is of.
    boot: str


@dataclass(slots=True)
class EventHandler:
    """Works in events in order. `laps` and `begun` are measurements under way; losing them costs a little accuracy."""

    staging: Staging
    world: PlatformWorld
    state_dir: StateDir
    source: ClockSource
    decide: Decide
    counts_load: bool = True  # whether what others take of a machine counts
    laps: dict[str, Lap] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)

    def handle(self, event: Event) -> bool:
        """Work in one event, and what follows from it for quotas and drained nodes."""
        match event:
            case NodeLost():
                return nodes.lose_node(self.staging, self.world, event, self.decide)
            case NodeLeaving():
                return nodes.leave_node(self.staging, self.world, event, self.decide)
            case NodeForgotten():
                forgotten_nodes.forget_node(self.staging, self.world, event.node)
                return False
            case NodeJoined():
                return nodes.join_node(self.staging, self.world, event, self.decide)
            case MachineLoaded():
                return self.machine_loaded(event)
        record = self.staging.jobs.get(event.job)
        if record is not None:
            nodes.let_stand(self.staging, self.world, record)
        changed = record is not None and record.active and self.handle_job(record, event)
        view = self.world.jobs.get(JobId(event.job))
        if changed and isinstance(event, Probed | Failed) and view is not None and view.job.purpose is Purpose.TRAIN:
            effects.judge_measured(self.staging, self.world, event.job)
        if self.world.inventory.drained:
            node_drains.follow_event(self.staging, event)
        return changed

    def machine_loaded(self, event: MachineLoaded) -> bool:
        """Others take more or less of a machine: all speeds on it count accordingly."""
        changed = outside_load.note_load(self.staging, self.world, event, self.counts_load)
        return changed and any([self.refresh(job_id) for job_id in list(self.world.jobs)])

    def handle_job(self, record: JobRecord, event: Event) -> bool:
        """Work in one event of an active job."""
        match event:
            case Started():
                return self.started(record, event)
            case ScriptInfo():
                return self.introduced(record, event)
            case Progressed():
                return self.progressed(record, event)
            case Resized():
                return self.resized(record, event)
            case Faulted():
                return self.faulted(record, event)
            case Stopped():
                return self.stopped(record, event)
            case Finished() | Failed():
                return self.ended(record, event)
            case Probed():
                return self.probed(record, event)
            case InputsSeen():
                self.inputs_seen(record, event)
            case Warned():
                self.stage(record, "warned", event.reason)
            case CheckpointFailing() | Checkpointed():
                self.checkpointed(record, event)
            case Lagging():
                self.lagging(record, event)
        return False

    def inputs_seen(self, record: JobRecord, event: InputsSeen) -> None:
        """Note what the inputs of a job hold; it is told if that is not what they held before."""
        before, now = record.inputs, event.fingerprints
        changed = [name for name in now if name in before and before[name] != now[name]]
        record = replace(record, inputs={**before, **now})
        if not changed:
            self.staging.stage(Effects(record))
            return
        sentence = sentences.tell_inputs(changed, record.step)
        record = record.with_condition("inputs_changed", changed[0], sentence, self.staging.now_s)
        self.stage(record, "inputs_changed", sentence, inputs=changed, step=record.step)

    def stage(self, record: JobRecord, kind: str, sentence: str, **data: Any) -> None:
        """Stage a record with the event that changed it."""
        self.staging.stage(Effects(record, (EventRecord(self.staging.now_s, kind, sentence, record.id, data),)))

    def started(self, record: JobRecord, event: Started) -> bool:
        """Its processes run, from a checkpoint or from the beginning."""
        if record.state is JobState.PROBING or event.generation < record.generation:
            return False
        lost = max(0, record.step - event.step)
        running = replace(record, state=JobState.RUNNING, step=event.step, lost_steps=record.lost_steps + lost)
        running = replace(running, stepped_s=None)
        where = f"from step {event.step}" if event.step else "from the beginning"
        sentence = f"runs {where} on {self.world.inventory.describe(event.devices)}"
        running = running.without_condition("recovering").without_condition("lagging")
        # A change that a fault cut short is made by the start after it, perhaps on one host only (`host_cuts`); a start
        # on devices that it no longer holds is followed by the change.
        if set(event.devices) <= set(record.devices):
            running = running.without_condition("rescaling")
        self.stage(running, "started", sentence, step=event.step, share=len(event.devices))
        self.world.note_share(record.id, len(event.devices), self.staging.now_s)
        self.laps.pop(record.id, None)
        self.place(running, event.step)
        return record.condition("recovering") is not None

    def introduced(self, record: JobRecord, event: ScriptInfo) -> bool:
        """The script has said how much work there is."""
        asked, total, speed = record.spec.steps, event.total_steps, self.find_held(record)
        capped = asked is not None and total is not None and total >= asked
        speed = replace(
            speeds.learn_costs(speed, startup_s=event.startup_s),
            total_steps=speed.total_steps if capped else total,
            steps_per_epoch=event.steps_per_epoch,
            logical_workers=event.logical_workers,
        )
        self.staging.put_speed(speed)
        total = total if asked is None or total is None else min(total, asked)
        self.staging.change(record.id, logical_workers=event.logical_workers, total_steps=total)
        return self.refresh(record.id)

    def progressed(self, record: JobRecord, event: Progressed) -> bool:
        """It is so far; learn its speed."""
        if record.state is JobState.PROBING or event.step < record.step:
            return False
        total = event.total_steps if record.total_steps is None else record.total_steps
        # a late word may be of one that has left its devices, or was on a node that is gone
        is_there = record.devices and not self.world.inventory.is_away(record.devices)
        state = JobState.RUNNING if is_there else record.state
        stepped_s = self.staging.now_s if event.step > record.step or record.stepped_s is None else record.stepped_s
        seen = {"step": event.step, "state": state, "total_steps": total, "stepped_s": stepped_s}
        record = self.staging.change(record.id, **seen)
        self.world.note_share(record.id, event.share, self.staging.now_s)
        self.place(record, event.step)
        return self.measure(record, event)

    def measure(self, record: JobRecord, event: Progressed) -> bool:
        """Take over the speed of the lap since the last change of devices, time outside steps included."""
        lap = self.laps.get(record.id)
        if self.world.inventory.is_mixed and record.condition("rescaling") is not None:
            return False  # these steps may still be of the devices before, of another type
        if lap is None or lap.share != event.share or lap.boot != event.boot:
            self.laps[record.id] = Lap(event.share, event.step, event.moment_s, event.boot)
            self.begun.setdefault(record.id, event.step)
            return False
        seconds = event.moment_s - lap.at_s
        if seconds < LEARN_AFTER_S or event.step == lap.step:
            return False
        self.laps[record.id] = Lap(event.share, event.step, event.moment_s, event.boot)
        steps = event.step - lap.step
        for speed in self.learn(record, lap, steps, self.leave_out_load(record, steps, seconds)):
            per_epoch = speed.steps_per_epoch or 0
            if per_epoch and event.step - self.begun.get(record.id, event.step) >= per_epoch:
                speed = replace(speed, whole_epoch=True)
            self.staging.put_speed(speed)
        return self.revise(record)

    def revise(self, record: JobRecord) -> bool:
        """Take over what was learned of a job's speed; on several types its workers may have to be dealt out anew."""
        view = self.world.jobs.get(JobId(record.id))
        changed = self.refresh(record.id)
        if changed and view is not None:
            job_changes.deal_anew(self.staging, self.world, self.state_dir, record, view.job.typed)
        return changed

    def refresh(self, job_id: str) -> bool:
        """Rebuild a job from what is known now; returns whether that changes anything worth a decision."""
        view = self.world.jobs.get(JobId(job_id))
        if view is None or view.job.purpose is Purpose.PROBE:
            return False
        old, job = view.job, live_jobs.build_job(self.staging.jobs[job_id], self.staging.speeds, self.world.inventory)
        if live_jobs.is_same(old, job):
            return False
        if view.share and not find_rate(job, view.share, view.mix):
            job = replace(job, curve=old.curve, typed=old.typed)  # it holds what is no longer wanted: let it end there
        self.world.revise(job, self.staging.now_s)
        return True

    def find_facts(self, record: JobRecord) -> live_jobs.JobFacts:
        """What is known of a job's speed, work and logical workers."""
        return live_jobs.look_up(record, self.staging.speeds, self.world.inventory)

    def find_held(self, record: JobRecord) -> SpeedRecord:
        """What is known of a job's speed on the devices it holds."""
        return live_jobs.find_held(record, self.staging.speeds, self.world.inventory)

    def learn(self, record: JobRecord, lap: Lap, steps: int, seconds: float) -> list[SpeedRecord]:
        """What a lap says of the speed on the types of devices it was run on."""
        mix = self.world.inventory.count_types(record.devices)
        if len(mix) == 1:
            return [speeds.learn_point(self.find_held(record), lap.share, steps, seconds)]
        known = self.find_facts(record).measured
        if sum(mix.values()) != lap.share or not mix.keys() <= known.keys():
            return []  # a type that was never measured alone cannot be told from the others
        return list(live_jobs.learn_mix(known, record.logical_workers or lap.share, mix, steps, seconds).values())

    def leave_out_load(self, record: JobRecord, steps: int, seconds: float) -> float:
        """The seconds that a lap would have taken without others on the machine, as far as these explain it.

        So a load does not outlive itself in what is known of a code's speed; and what its steps show is noted, because
        it tells more of this job than the processors do.
        """
        slowdown, view = self.world.inventory.find_slowest(record.devices), self.world.jobs.get(JobId(record.id))
        if slowdown <= 1.0 or view is None or not self.find_facts(record).measured:
            return seconds
        known, only = self.staging.speeds[record.speed_key], self.world.inventory.device_types[0]
        rate, _ = expected_ends.expect(known, view, only)
        if not rate:
            return seconds
        self.world.paces[record.id] = max(1.0, seconds * rate / steps)
        return max(seconds / slowdown, min(seconds, steps / rate))

    def resized(self, record: JobRecord, event: Resized) -> bool:
        """It goes on with other devices."""
        if record.state is JobState.PROBING or event.generation < record.generation:
            return False
        record = record.without_condition("rescaling").without_condition("lagging")
        record = replace(record, pause_s=record.pause_s + event.pause_s)
        held = self.world.inventory.describe(event.devices)
        sentence = f"goes on with {held} after a pause of {show_span(event.pause_s)}"
        self.stage(record, "resized", sentence, share=len(event.devices), pause_s=event.pause_s, step=event.step)
        self.staging.put_speed(speeds.learn_costs(self.find_held(record), pause_s=event.pause_s))
        self.world.note_share(record.id, len(event.devices), self.staging.now_s)
        self.laps.pop(record.id, None)
        self.place(record, event.step)
        return False

    def faulted(self, record: JobRecord, event: Faulted) -> bool:
        """Processes were lost; the executor starts it again by itself."""
        why = f"starts again after a fault: {event.reason}"
        record = replace(record, faults=record.faults + 1, step=max(record.step, event.step))
        record = record.with_condition("recovering", event.cause, why, self.staging.now_s)
        sentence = f"fault ({event.cause}): {event.reason}"
        self.stage(record, "faulted", sentence, cause=event.cause, step=event.step, user_fault=event.user_fault)
        self.laps.pop(record.id, None)
        return True

    def stopped(self, record: JobRecord, event: Stopped) -> bool:
        """Its devices are given back: as told, or (when it should still hold some) because the executor had to.

        Told twice it counts once. One that did not run where it was told to stop says nothing of what is saved.
        """
        is_over = event.generation < record.generation or event.generation <= record.stopped_generation
        if is_over or event.cancelled:
            return False
        self.laps.pop(record.id, None)
        step = event.step if event.lost else max(event.step, record.saved_step)
        # the next start begins where the record says, and would find nothing lost
        stopped = replace(record, step=step, stopped_generation=event.generation)
        if not record.devices and not event.lost:
            self.staging.stage(Effects(stopped))
            return False
        stopped = replace(stopped, lost_steps=record.lost_steps + event.lost)
        sentence = sentences.tell_stopped(step, event.reason, event.lost)
        self.stage(stopped, "stopped", sentence, step=step, lost=event.lost)
        if record.devices:
            transitions.leave_devices(self.staging, self.world, record.id)
        if event.lost and record.state is not JobState.PROBING:
            self.place(stopped, step)  # they are to be done again, and plans count with them
        return True

    def ended(self, record: JobRecord, event: Finished | Failed) -> bool:
        """It is over. An end under an older generation counts too: what ended cannot be resized or stopped any more."""
        at_s = self.find_moment(event)
        if isinstance(event, Failed) and self.fail_probe(record, event.reason):
            return True
        if isinstance(event, Finished):
            total = record.total_steps if event.reason is None else event.step
            self.staging.change(record.id, step=event.step, total_steps=total or event.step, weights=event.weights)
            ending = Ending(JobState.SUCCEEDED, "finished", sentences.tell_finish(event.step, event.reason))
        else:
            self.staging.change(record.id, step=max(record.step, event.step), exit_code=event.exit_code)
            ending = Ending(JobState.FAILED, event.code, event.reason)
        transitions.end_job(self.staging, self.world, record.id, ending, at_s)
        self.world.used_shares.pop(record.id, None)
        self.laps.pop(record.id, None)
        self.begun.pop(record.id, None)
        return True

    def probed(self, record: JobRecord, event: Probed) -> bool:
        """Its speed is known: it arrives as a job to be answered, or is measured on another type first."""
        if record.state is not JobState.PROBING or event.generation < record.generation:
            return False
        if not event.points:
            if not self.fail_probe(record, sentences.NO_STEPS):
                transitions.end_job(self.staging, self.world, record.id, NO_STEPS)
            return True
        speed = speeds.learn_costs(self.find_held(record), event.startup_s, event.pause_s)
        # As they were seen, also beside others on the machine: a script that waits for its data was slowed less than
        # the processors say, and a speed that is believed too high is promised.
        points = {point.share: (point.steps, point.steps_per_s) for point in event.points}
        self.staging.put_speed(replace(speed, points={**speed.points, **points}))
        device_type = f" {speed.device_type}" if self.world.inventory.is_mixed else ""
        measured = ", ".join(f"{point.steps_per_s:.2f} steps/s on {point.share}{device_type}" for point in event.points)
        self.stage(record, "probed", f"measured {measured}", points=points)
        self.follow_probe(record)
        return True

    def follow_probe(self, record: JobRecord) -> None:
        """Measure a job on a further device type that is free now, or put it before the policy.

        A type without a free device is not waited for: the job is promised nothing there.
        """
        staging, world = self.staging, self.world
        transitions.end_probe(staging, world, record.id)
        record = staging.jobs[record.id]
        measured = self.find_facts(record).measured
        further = list_unmeasured(record, measured, world) if record.total_steps is not None else ()
        if further:
            transitions.arrive_probe(staging, world, record, further)
        else:
            transitions.arrive(staging, world, record)

    def fail_probe(self, record: JobRecord, why: str) -> bool:
        """A probe has failed: a job that was measured on another device type is answered by that; returns whether."""
        if record.state is not JobState.PROBING or not self.find_facts(record).measured:
            return False
        where = " and ".join(self.world.inventory.count_types(record.devices)) or "its devices"
        self.stage(record, "probe_failed", f"could not be measured on {where}: {why}")
        transitions.leave_devices(self.staging, self.world, record.id)
        return True

    def checkpointed(self, record: JobRecord, event: Checkpointed | CheckpointFailing) -> None:
        """A checkpoint was written, or could not be."""
        failing = record.condition("checkpoint_failing") is not None
        if isinstance(event, CheckpointFailing):
            sentence = f"checkpoints cannot be written: {event.reason}; training goes on"
            record = record.with_condition("checkpoint_failing", event.reason, sentence, self.staging.now_s)
            if failing:
                self.staging.stage(Effects(record))
            else:
                self.stage(record, "checkpoint_failing", sentence, step=event.step)
            return
        record = replace(record, saved_step=max(record.saved_step, event.step))
        if failing:
            sentence = f"checkpoints are written again, at step {event.step}"
            self.stage(record.without_condition("checkpoint_failing"), "checkpointed", sentence, step=event.step)
        else:
            self.staging.stage(Effects(record))

    def lagging(self, record: JobRecord, event: Lagging) -> None:
        """One of its processes holds the others up, or does no longer."""
        if event.device:
            sentence = sentences.tell_lagging(event.device, event.factor)
            record = record.with_condition("lagging", event.device, sentence, self.staging.now_s)
            self.stage(record, "lagging", sentence, device=event.device, factor=event.factor)
        elif record.condition("lagging") is not None:
            self.stage(record.without_condition("lagging"), "in_step", sentences.IN_STEP)

    def place(self, record: JobRecord, step: int) -> None:
        """Correct the world: so much work is left now, and nothing pauses it."""
        now_s, view = self.staging.now_s, self.world.jobs.get(JobId(record.id))
        if view is None:
            return
        done = step if record.spec.elastic else view.ran_at(now_s)
        left = max(0.0, view.job.work - done)
        self.world.observe(view.job.id, Progress(left, view.progress.rate, now_s, now_s), now_s)

    def find_moment(self, event: Event) -> float:
        """When an event happened in platform time: now, unless it waited for a server that was away."""
        now_s, steady_s = self.staging.now_s, self.source.steady_s()
        # a counter of another machine, or ahead of ours and so of an earlier boot, says nothing here
        is_ours = event.steady_s is not None and event.steady_s <= steady_s and event.boot in ("", self.source.origin())
        told_s = self.source.wall_s() - event.at_s if event.age_s is None else event.age_s
        age_s = steady_s - event.moment_s if is_ours else told_s
        if age_s < OLD_EVENT_S:
            return now_s
        record = self.staging.jobs[event.job]
        return max(now_s - age_s, record.settled_s, record.submitted_s)


def list_unmeasured(record: JobRecord, measured: live_jobs.SpeedsByType, world: PlatformWorld) -> tuple[str, ...]:
    """The device types that a job may use, was not measured on, and that have a free device."""
    free = {device_type for device_type, mask in zip(world.cluster.node_types, world.free_masks, strict=True) if mask}
    allowed = live_jobs.list_device_types(record, world.inventory)
    return tuple(device_type for device_type in allowed if device_type in free and device_type not in measured)
