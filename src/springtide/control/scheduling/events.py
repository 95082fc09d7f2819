"""What executors report, worked into the book and the world. Returns whether a new decision is called for.

Events may come late, twice, or from a generation that is over; each handler says what it does then.
"""

from dataclasses import dataclass, field, replace

from springtide.control.scheduling import device_types, probes, speeds
from springtide.control.scheduling.context import Context
from springtide.control.scheduling.effects import deal_again, end_job, leave_devices
from springtide.control.storage.records import JobRecord, SpeedRecord, State
from springtide.core.decisions import Progress
from springtide.core.durations import show_span
from springtide.core.job_file import JobFile
from springtide.core.jobs import JobId
from springtide.executors.protocol import (
    Checkpointed,
    CheckpointFailing,
    Event,
    Failed,
    Faulted,
    Finished,
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


@dataclass(slots=True)
class Lap:
    """Where the measurement of a job's speed at one share began."""

    share: int
    step: int
    at_s: float


@dataclass(slots=True)
class EventHandler:
    """Hears events in order. `laps` and `begun` are measurements under way; losing them costs a little accuracy."""

    platform: Context
    laps: dict[str, Lap] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)

    def hear(self, event: Event) -> bool:
        """Work in one event."""
        record = self.platform.book.jobs.get(event.job)
        if record is None or not record.active:
            return False
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
            case Warned():
                self.platform.book.note("warned", event.reason, record.id)
                return False
            case CheckpointFailing() | Checkpointed():
                return self.checkpointed(record, event)
            case _:
                return False

    def started(self, record: JobRecord, event: Started) -> bool:
        """Its processes run, from a checkpoint or from the beginning."""
        book = self.platform.book
        if record.state is State.PROBING or event.generation < record.generation:
            return False
        lost = max(0, record.step - event.step)
        recovered = book.clear_condition(record.id, "recovering")
        book.change(record.id, state=State.RUNNING, step=event.step, lost_steps=record.lost_steps + lost)
        where = f"from step {event.step}" if event.step else "from the beginning"
        sentence = f"runs {where} on {self.platform.site.describe(event.devices)}"
        book.note("started", sentence, record.id, step=event.step, share=len(event.devices))
        self.laps.pop(record.id, None)
        self.place(record.id, event.step)
        return recovered

    def introduced(self, record: JobRecord, event: ScriptInfo) -> bool:
        """The script has said how much work there is."""
        book, speed = self.platform.book, self.platform.speed(record)
        job = JobFile.model_validate(record.spec)
        total = event.total_steps
        capped = job.steps is not None and total is not None and total >= job.steps
        speed = replace(
            speeds.learn_costs(speed, startup_s=event.startup_s),
            total_steps=speed.total_steps if capped else total,
            steps_per_epoch=event.steps_per_epoch,
            logical_workers=event.logical_workers,
        )
        book.put_speed(speed)
        changes = {"total_steps": total if job.steps is None or total is None else min(total, job.steps)}
        book.change(record.id, logical_workers=event.logical_workers, **changes)
        return self.platform.refresh(record.id)

    def progressed(self, record: JobRecord, event: Progressed) -> bool:
        """It is so far; learn its speed."""
        if record.state is State.PROBING or event.step < record.step:
            return False
        book = self.platform.book
        book.change(record.id, step=event.step, state=State.RUNNING)
        if event.total_steps is not None and record.total_steps is None:
            book.change(record.id, total_steps=event.total_steps)
        self.place(record.id, event.step)
        return self.measure(record, event)

    def measure(self, record: JobRecord, event: Progressed) -> bool:
        """Take over the speed of the lap since the last change of devices, time outside steps included."""
        lap = self.laps.get(record.id)
        if self.platform.site.is_mixed and record.condition("rescaling") is not None:
            return False  # these steps may still be of the devices before, of another type
        if lap is None or lap.share != event.share:
            self.laps[record.id] = Lap(event.share, event.step, event.moment_s)
            self.begun.setdefault(record.id, event.step)
            return False
        seconds = event.moment_s - lap.at_s
        if seconds < LEARN_AFTER_S or event.step == lap.step:
            return False
        self.laps[record.id] = Lap(event.share, event.step, event.moment_s)
        for speed in self.learn(record, lap, event.step - lap.step, seconds):
            per_epoch = speed.steps_per_epoch or 0
            if per_epoch and event.step - self.begun.get(record.id, event.step) >= per_epoch:
                speed = replace(speed, whole_epoch=True)
            self.platform.book.put_speed(speed)
        return self.revise(record)

    def revise(self, record: JobRecord) -> bool:
        """Take over what was learned of a job's speed; on several types its workers may have to be dealt out anew."""
        view = self.platform.world.jobs.get(JobId(record.id))
        changed = self.platform.refresh(record.id)
        if changed and view is not None:
            deal_again(self.platform, record, view.job.typed)
        return changed

    def learn(self, record: JobRecord, lap: Lap, steps: int, seconds: float) -> list[SpeedRecord]:
        """What a lap says of the speed on the types of devices it was run on."""
        mix = self.platform.site.count_types(record.devices)
        if len(mix) == 1:
            return [speeds.learn_point(self.platform.speed(record), lap.share, steps, seconds)]
        known = speeds.list_measured(self.platform.known(record))
        if sum(mix.values()) != lap.share or not mix.keys() <= known.keys():
            return []  # a type that was never measured alone cannot be told from the others
        return list(device_types.learn_mix(known, record.logical_workers or lap.share, mix, steps, seconds).values())

    def resized(self, record: JobRecord, event: Resized) -> bool:
        """It goes on with other devices."""
        if record.state is State.PROBING or event.generation < record.generation:
            return False
        book = self.platform.book
        book.clear_condition(record.id, "rescaling")
        book.change(record.id, pause_s=record.pause_s + event.pause_s)
        held = self.platform.site.describe(event.devices)
        sentence = f"goes on with {held} after a pause of {show_span(event.pause_s)}"
        book.note("resized", sentence, record.id, share=len(event.devices), pause_s=event.pause_s, step=event.step)
        book.put_speed(speeds.learn_costs(self.platform.speed(record), pause_s=event.pause_s))
        self.laps.pop(record.id, None)
        self.place(record.id, event.step)
        return False

    def faulted(self, record: JobRecord, event: Faulted) -> bool:
        """Processes were lost; the executor starts it again by itself."""
        book = self.platform.book
        book.change(record.id, faults=record.faults + 1, step=max(record.step, event.step))
        book.set_condition(record.id, "recovering", event.cause, f"starts again after a fault: {event.reason}")
        sentence = f"fault ({event.cause}): {event.reason}"
        book.note("faulted", sentence, record.id, cause=event.cause, step=event.step, user_fault=event.user_fault)
        self.laps.pop(record.id, None)
        return True

    def stopped(self, record: JobRecord, event: Stopped) -> bool:
        """Its devices are given back: as told, or (when it should still hold some) because the executor had to."""
        book = self.platform.book
        if event.generation < record.generation or event.cancelled:
            return False
        book.change(record.id, step=event.step)
        self.laps.pop(record.id, None)
        if not record.devices:
            return False
        book.note("stopped", f"gave its devices back at step {event.step}: {event.reason}", record.id, step=event.step)
        leave_devices(self.platform, record.id)
        return True

    def ended(self, record: JobRecord, event: Finished | Failed) -> bool:
        """It is over. An end under an older generation counts too: what ended cannot be resized or stopped any more."""
        at_s = self.happened_s(event)
        book = self.platform.book
        if isinstance(event, Failed) and probes.lose(self.platform, record, event.reason):
            return True
        if isinstance(event, Finished):
            total = record.total_steps if event.reason is None else event.step
            book.change(record.id, step=event.step, total_steps=total or event.step)
            end_job(self.platform, record.id, State.SUCCEEDED, "finished", tell_finish(event), at_s)
        else:
            book.change(record.id, step=max(record.step, event.step), exit_code=event.exit_code)
            end_job(self.platform, record.id, State.FAILED, event.code, event.reason, at_s)
        self.laps.pop(record.id, None)
        self.begun.pop(record.id, None)
        return True

    def probed(self, record: JobRecord, event: Probed) -> bool:
        """Its speed is known: it arrives as a job to be answered."""
        if record.state is not State.PROBING or event.generation < record.generation:
            return False
        if not event.points:
            sentence = (
                "its probe ended before the first step; it cannot be promised a finish, run it without a deadline"
            )
            if not probes.lose(self.platform, record, sentence):
                end_job(self.platform, record.id, State.FAILED, "no_steps", sentence, self.platform.clock.now_s())
            return True
        speed = speeds.learn_costs(self.platform.speed(record), event.startup_s, event.pause_s)
        points = {point.share: (point.steps, point.steps_per_s) for point in event.points}
        self.platform.book.put_speed(replace(speed, points={**speed.points, **points}))
        kind = f" {speed.device_type}" if self.platform.site.is_mixed else ""
        measured = ", ".join(f"{point.steps_per_s:.2f} steps/s on {point.share}{kind}" for point in event.points)
        self.platform.book.note("probed", f"measured {measured}", record.id, points=points)
        probes.go_on(self.platform, record.id)
        return True

    def checkpointed(self, record: JobRecord, event: Checkpointed | CheckpointFailing) -> bool:
        """A checkpoint was written, or could not be."""
        book = self.platform.book
        if isinstance(event, CheckpointFailing):
            sentence = f"checkpoints cannot be written: {event.reason}; training goes on"
            if book.set_condition(record.id, "checkpoint_failing", event.reason, sentence):
                book.note("checkpoint_failing", sentence, record.id, step=event.step)
        elif book.clear_condition(record.id, "checkpoint_failing"):
            book.note(
                "checkpointed", f"checkpoints are written again, at step {event.step}", record.id, step=event.step
            )
        return False

    def place(self, job_id: str, step: int) -> None:
        """Correct the world: so much work is left now, and nothing pauses it."""
        view = self.platform.world.jobs.get(JobId(job_id))
        if view is None:
            return
        now_s = self.platform.clock.now_s()
        job = JobFile.model_validate(self.platform.book.jobs[job_id].spec)
        done = step if job.elastic else view.ran_at(now_s)
        left = max(0.0, view.job.work - done)
        self.platform.world.observe(JobId(job_id), Progress(left, view.progress.rate, now_s, now_s), now_s)

    def happened_s(self, event: Event) -> float:
        """When an event happened in platform time: now, unless it waited for a server that was away."""
        clock = self.platform.clock
        now_s, steady_s = clock.now_s(), clock.source.steady_s()
        # a counter ahead of ours is that of an earlier boot
        is_ours = event.steady_s is not None and event.steady_s <= steady_s
        age_s = steady_s - event.moment_s if is_ours else clock.source.wall_s() - event.at_s
        if age_s < OLD_EVENT_S:
            return now_s
        record = self.platform.book.jobs[event.job]
        return max(now_s - age_s, record.settled_s, record.submitted_s)


def tell_finish(event: Finished) -> str:
    """The sentence of a job that ended well."""
    after = f" after step {event.step}" if event.step else ""  # a gang tells no steps
    return f"finished{after}" + (f": {event.reason}" if event.reason else "")
