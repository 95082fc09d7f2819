"""One job on this machine: from its instructions and its processes' messages to what is done next.

A runner starts the job's processes, resizes them in place, ends them with a grace, and starts them again from the last
checkpoint when they are lost, hang or crash. It never waits: `tick` moves it on. One start is an `Attempt`; what exit
codes mean and when to give up is in `exit_causes`, what counts as a hang in `hangs`, what processes say in `listening`,
what is reported of it in `job_reports`. A probe is `probe_runner`'s.
"""

import signal
import time
import traceback
from pathlib import Path

from springtide.core.plain_text import make_plain
from springtide.executors.delivery import EventFields
from springtide.executors.local.jobs import environment, listening
from springtide.executors.local.jobs.attempt import AgentContext, Attempt, Workers, find_workers, fit_devices
from springtide.executors.local.jobs.checkpoint_folder import CheckpointFolder
from springtide.executors.local.jobs.exit_causes import ExitCause, Restarts, describe_code
from springtide.executors.local.jobs.hang_watch import HangWatch
from springtide.executors.local.jobs.host_cuts import HostCut
from springtide.executors.local.jobs.input_watch import InputWatch
from springtide.executors.local.jobs.job_reports import JobReports
from springtide.executors.local.jobs.left_outputs import find_missing
from springtide.executors.local.jobs.places import ProcessHandlers
from springtide.executors.local.jobs.progress import AttemptProgress
from springtide.executors.local.jobs.worker_logs import JobLogs
from springtide.executors.local.jobs.worker_messages import MetricsMessage, read_message
from springtide.executors.local.journal import AssignedJob
from springtide.executors.local.json_connections import Message
from springtide.executors.local.processes.worker_processes import WorkerProcess
from springtide.executors.protocol import (
    Checkpointed,
    Event,
    Failed,
    Faulted,
    Finished,
    InputsSeen,
    Resized,
    Running,
    Started,
    Stop,
    Stopped,
)
from springtide.executors.wire import describe_problem


class JobRunner:
    """One job.

    `phase` is waiting (for its next start), starting, running, resizing, settling (after a failure, for the one that
    explains it), stopping (in its grace), clearing (killed, not yet gone) or over.
    """

    #: What its log says of a start.
    attempt_kind = "start"

    def __init__(self, context: AgentContext, assigned: AssignedJob) -> None:
        self.context = context
        self.assigned = assigned
        self.spec = assigned.order.spec
        self.job = assigned.order.job
        self.logs = JobLogs(Path(self.spec.log_dir))
        self.phase = "waiting"
        self.until_s = 0.0
        self.attempt: Attempt | None = None
        self.progress = AttemptProgress(time.monotonic(), step=assigned.step)
        self.watch = HangWatch(context.options, self.spec.patience_s)
        self.reports = JobReports(context, lambda: self.common)
        self.inputs = InputWatch(self.spec, lambda found: context.emit(InputsSeen(**self.common, fingerprints=found)))
        self.checkpoints = CheckpointFolder(Path(self.spec.checkpoint.dir), self.spec.run_as)
        self.checkpoints.find_new()  # those that are there already are none to be reported
        self.restarts = Restarts(assigned.step, context.options.futile)
        self.cut = HostCut()
        #: How many logical workers there should be; None once a start that counted on it has failed.
        self.expected = self.spec.expected_workers
        #: The generation whose devices the processes use, and the one that a change under way leads to.
        self.reached = self.heading = -1
        #: The event to emit when the processes are gone; None: start again.
        self.last: Event | None = None
        #: Why the agent itself ends the job, if it does: the lease, or its own end.
        self.leaving: str | None = None
        self.abandoned = False

    @property
    def workers(self) -> Workers | None:
        """The logical workers and where they go; None while nobody knows how many there are."""
        return find_workers(self.assigned, self.expected)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The devices to use now."""
        devices, workers = self.cut.confine(self.assigned.devices, time.monotonic()), self.workers
        return fit_devices(devices, workers.total if workers else None) if self.spec.elastic else devices

    @property
    def in_use(self) -> set[str]:
        """The devices on which processes of this job may be alive."""
        return self.attempt.processes.in_use if self.attempt is not None else set()

    @property
    def helpers(self) -> tuple[int, ...]:
        """The process that prepares it or looks at its inputs."""
        return self.inputs.pids

    @property
    def is_ending(self) -> bool:
        """Whether the job is to give its devices back."""
        return self.assigned.ending is not None or self.leaving is not None

    @property
    def is_over(self) -> bool:
        """Whether the last event was emitted."""
        return self.phase == "over"

    @property
    def common(self) -> EventFields:
        """The fields of every event."""
        return {"job": self.job, "generation": self.assigned.generation}

    def make_running(self) -> Running:
        """The job as `running()` shows it."""
        known = self.phase in ("starting", "running", "resizing")
        state = self.phase if known else "recovering" if self.restarts.count else "starting"
        state = "stopping" if self.is_ending else state
        return self.reports.make_running(self.assigned.devices, state, self.attempt, self.progress)

    # Starting, and what the processes say.

    def make_ready(self) -> None:
        """Have the job's setup and inputs looked after, if it has any; then start it."""
        if self.spec.preparation is None:
            self.launch()
            return
        self.phase = "preparing"
        try:
            self.inputs.begin()
        except (OSError, KeyError) as error:
            self.fail("no_folder", f"its setup cannot be started ({error})", user_fault=False)

    def follow_preparation(self) -> None:
        """Start the job once it is prepared; one that cannot be fails with what was printed in its log."""
        done = self.inputs.poll()
        if done is None:
            return
        if done.printed:
            self.logs.write(0, done.printed, time.time())
        if not done.code:
            self.inputs.note(done.fingerprints, time.monotonic())
            self.launch()
        elif done.code == "input_unreachable":
            self.fault(done.code, done.reason)
        else:
            last = done.printed.decode(errors="replace").strip().rpartition("\n")[2]
            said = f": {make_plain(last)}" if last and done.code == "setup_failed" else ""
            self.fail(done.code, f"{done.reason}{said}")

    def launch(self) -> None:
        """Start the processes, from the last checkpoint if there is one."""
        self.phase = "starting"
        before = self.progress
        self.watch.begin(before)
        self.progress = AttemptProgress(time.monotonic(), step=before.step, total_steps=before.total_steps)
        if (problem := environment.prepare(self.spec)) is not None:
            self.fail(*problem)
            return
        self.logs.begin(self.attempt_kind, self.wanted, before.step, time.time())
        self.attempt = self.make_attempt()
        self.attempt.processes.connect_handlers(
            ProcessHandlers(self.handle_message, self.keep_output, self.handle_exit, self.handle_nonsense)
        )

    def make_attempt(self) -> Attempt:
        """New processes for the job."""
        return Attempt(self.context, self.assigned, self.restarts.count)

    def keep_output(self, process: WorkerProcess, data: bytes) -> None:
        """Write what a process prints to the log of its rank."""
        if self.attempt is not None:
            self.logs.write(self.attempt.rank_of(process), data, time.time())

    def handle_message(self, process: WorkerProcess, message: Message) -> None:
        """Act on a message of a process; one that is none of ours, or a mistake of ours, ends this job and no other."""
        if self.attempt is None or self.phase in ("clearing", "over"):
            return
        try:
            listening.interpret(self, self.attempt, process, read_message(message))
        except ValueError as error:
            self.handle_nonsense(process, describe_problem(error))
        except Exception as error:
            traceback.print_exc()
            self.fail(
                "agent_error", f"the agent could not act on what process {process.name} said: {error!r}", None, False
            )

    def handle_nonsense(self, process: WorkerProcess, said: str) -> None:
        """A process has told the agent what cannot be: its job is over."""
        if self.attempt is not None and self.phase not in ("clearing", "over"):
            usual = "its script or a library in it wrote to $SPRINGTIDE_CONTROL, or has another springtide"
            self.fail("bad_message", f"process {process.name} said to the agent what cannot be: {said}; {usual}")

    def keep_metrics(self, message: MetricsMessage) -> None:
        """Write down what a step recorded."""
        self.logs.write_metrics(message.step, message.metrics, time.time())

    def handle_plan(self) -> None:
        """The script has said its goal and is about to take steps; report what is new in it."""
        assert self.attempt is not None
        if self.phase == "starting":
            self.begin(self.progress.step)
        self.reports.report_plan(self.attempt, self.progress)

    def begin(self, step: int) -> None:
        """The processes run; of a gang, which may never send a message, that is assumed."""
        assert self.attempt is not None
        self.phase = "running"
        self.reached = self.assigned.generation
        self.context.emit(Started(**self.common, devices=self.attempt.devices, step=step))

    def handle_step(self) -> None:
        """A global step was completed."""
        self.restarts.add_step(self.progress.step)

    def complete_change(self, step: int, pause_s: float) -> None:
        """The change of devices has been made, as a generation asked that need not be the newest."""
        assert self.attempt is not None
        self.attempt.complete_change()
        if self.phase == "resizing":
            self.phase = "running"
        elif self.phase == "stopping":  # who was told to end may have left in this change, and told nobody
            self.attempt.command({"do": "terminate"})
        self.progress.speed.pause()
        self.reached = self.heading
        devices = self.attempt.devices
        self.logs.note("resize", devices, step, time.time())
        self.context.emit(Resized(job=self.job, generation=self.heading, devices=devices, step=step, pause_s=pause_s))

    def report(self) -> None:
        """Report how far the job is, if it has moved."""
        self.reports.report_progress(self.attempt, self.progress)

    # Ends.

    def handle_exit(self, process: WorkerProcess) -> None:
        """A process has ended: as it should, or the first of a failure."""
        attempt = self.attempt
        if attempt is None or self.phase in ("clearing", "over") or not attempt.add_exit(process):
            return
        if attempt.is_done(self.progress.finished):
            if self.phase == "stopping":
                self.conclude_stop()
            else:
                self.conclude()
        elif self.phase in ("starting", "running", "resizing") and process.is_suspicious:
            self.phase = "settling"
            self.until_s = time.monotonic() + self.context.options.settle_s

    def conclude(self) -> None:
        """Find the cause by the codes of those that have ended, and act on it."""
        assert self.attempt is not None
        cause = self.attempt.find_cause(self.progress.finished)
        match cause.name:
            case "finished":
                self.finish()
            case "killed" | "store_lost" | "peer_lost":
                self.fault("killed", cause.describe(self.attempt.hosts), is_apart=cause.name == "peer_lost")
            case "out_of_memory":
                self.fail(cause.name, environment.describe_memory(self.spec), cause.code)
            case "crashed":
                self.crash(cause)
            case "no_init":
                self.fail("no_init", environment.describe_missing_init("before it ended"), 0)
            case _:
                self.fail("early_exit", self.progress.describe_early_exit(), 0)

    def finish(self) -> None:
        """The job is done, if it has left what it was to leave."""
        missing = find_missing(self.spec)
        if missing:
            missed = f"it ended well, but left no {missing[0]!r} in $SPRINGTIDE_OUTPUT, which `outputs` names"
            self.fail("no_outputs", f"{missed}; write it there, or take it out of `outputs`", 0)
            return
        self.report()
        self.report_checkpoint()
        weights, reason = self.checkpoints.find_weights(), self.progress.finish_reason
        self.clear(Finished(**self.common, step=self.progress.step, reason=reason, weights=weights))

    def crash(self, cause: ExitCause) -> None:
        """The user's code has failed: try again while retries are left. A result not saved is no fault of it."""
        assert self.attempt is not None
        if self.progress.result_failure:
            self.fault("unsaved", f"the result could not be saved: {self.progress.result_failure}")
            return
        rank = self.attempt.rank_of(self.attempt.processes.by_name[cause.process])
        printed = make_plain(self.logs.sum_up(rank)) or "it said nothing"
        reason = f"rank {rank} {describe_code(cause.code)}: {printed}"
        if self.is_guess:
            self.expected = None
            self.fault("unexpected", f"{reason}; it starts again in one process, until the script has said more")
        elif cause.can_retry and self.may_retry:
            self.fault("crashed", reason, user_fault=True)
        else:
            self.fail("crashed", reason, cause.code)

    @property
    def is_guess(self) -> bool:
        """Whether the processes were started for a number of workers that nobody has said since."""
        said = self.spec.logical_workers or self.assigned.logical_workers
        return self.spec.elastic and self.expected is not None and said is None

    @property
    def may_retry(self) -> bool:
        """Whether the user's code may crash once more."""
        return self.assigned.crashes < self.spec.retries

    def fail(self, code: str, reason: str, exit_code: int | None = None, user_fault: bool = True) -> None:
        """Give the job up."""
        self.report()
        step = self.progress.step
        self.logs.note("end", (), step, time.time(), reason)
        last = Failed(**self.common, step=step, exit_code=exit_code, reason=reason, user_fault=user_fault, code=code)
        self.clear(last)

    def fault(self, cause: str, reason: str, user_fault: bool = False, is_apart: bool = False) -> None:
        """Start again from the last checkpoint, unless that has led nowhere too often.

        `is_apart`: its processes may not have reached each other.
        """
        if is_apart and self.spec.elastic:
            reason += self.cut.add_end(self.wanted, self.progress.has_stepped, time.monotonic())
        if self.restarts.are_hopeless:
            why = f"{reason}; {self.restarts.futile} restarts in a row made no step"
            self.fail("no_progress", why, user_fault=False)
            return
        step = self.progress.step
        self.logs.note("end", (), step, time.time(), reason)
        self.context.emit(Faulted(**self.common, cause=cause, reason=reason, step=step, user_fault=user_fault))
        self.until_s = self.restarts.add(time.monotonic())
        self.clear(None)

    def clear(self, last: Event | None) -> None:
        """Kill what is left; when it has gone, emit the last event, or start again."""
        self.phase, self.last = "clearing", last
        self.inputs.kill()
        if self.attempt is not None:
            self.attempt.processes.kill_all()

    def finish_clearing(self) -> None:
        """The processes are gone."""
        if self.attempt is not None:
            self.attempt.processes.close()
            self.attempt = None
        if self.abandoned:
            self.phase = "over"
        elif self.last is not None or self.is_ending:
            self.phase = "over"
            self.logs.close()
            self.context.emit(self.last or self.make_stopped())
        else:
            self.phase = "waiting"

    def let_lie(self, reason: str) -> None:
        """End at once, whatever is left: the job must not stay for ever because of a mistake of ours."""
        self.phase, step = "over", self.progress.step
        failed = Failed(**self.common, step=step, exit_code=None, reason=reason, user_fault=False, code="agent_error")
        if not self.abandoned:
            self.context.emit(self.last or failed)

    def make_stopped(self) -> Stopped:
        """The devices are free, by an instruction or because the agent leaves."""
        reason = self.assigned.ending.reason if self.assigned.ending is not None else self.leaving or ""
        seen = self.checkpoints.find_saved(self.progress.step if self.progress.terminated else -1)
        return self.reports.make_stopped(self.assigned, reason, self.progress, seen)

    def abandon(self) -> None:
        """End without an event: a newer start takes the job's place."""
        self.abandoned = True
        self.clear(None)

    def lose_fork(self) -> None:
        """The fork server has gone, and with it the reports of how the processes end."""
        if self.attempt is None or self.phase == "over":
            return
        self.attempt.processes.lose_fork()
        if self.phase == "stopping":
            self.clear(None)
        elif self.phase != "clearing":
            self.fault("fork_server_lost", "the fork server was lost, and with it the job's processes")

    # Stopping.

    def stop(self) -> None:
        """End the processes: with a checkpoint if there is anything to save, else at once."""
        attempt = self.attempt
        if self.phase in ("stopping", "clearing", "over"):
            return
        if attempt is None or self.phase == "settling":
            self.clear(None)
        elif self.progress.has_stepped:
            attempt.command({"do": "terminate"})
            self.give_grace()
        elif not self.spec.elastic and not attempt.connected:
            for process in attempt.ranked:
                process.signal(signal.SIGTERM)
            self.give_grace()
        else:
            self.clear(None)

    def give_grace(self) -> None:
        """Let the processes end by themselves: in the time given, or in what their steps and checkpoints call for."""
        self.phase = "stopping"
        ending = self.assigned.ending
        given_s = ending.grace_s if isinstance(ending, Stop) else None
        fitting_s = self.context.options.find_grace_s(self.progress.speed.longest_gap_s, self.checkpoints.measure())
        self.until_s = time.monotonic() + (fitting_s if given_s is None else given_s)

    def has_had_grace(self, now_s: float) -> bool:
        """Whether the processes have had their time, or would not use what is left of it."""
        return self.attempt is None or now_s >= self.until_s or self.watch.is_stuck(self.attempt, now_s)

    def conclude_stop(self) -> None:
        """All processes have ended in their grace: stopped, unless they had just finished."""
        assert self.attempt is not None
        if self.progress.finished and not any(self.attempt.codes.values()):
            self.finish()
        else:
            self.clear(None)

    # Time.

    def tick(self, now_s: float) -> None:
        """Do what time calls for."""
        if self.is_ending:
            self.stop()
        match self.phase:
            case "waiting" if now_s >= self.until_s and self.context.may_use(self.job, self.wanted):
                self.make_ready()
            case "preparing":
                self.follow_preparation()
            case "clearing" if self.attempt is None or self.attempt.processes.are_gone:
                self.finish_clearing()
            case "clearing":
                self.reports.report_left(self.attempt, now_s)
            case "settling" if now_s >= self.until_s:
                self.conclude()
            case "stopping" if self.has_had_grace(now_s):
                self.clear(None)
            case "starting" | "running" | "resizing":
                self.oversee(now_s)

    def oversee(self, now_s: float) -> None:
        """Watch over processes that run."""
        assert self.attempt is not None
        if self.attempt.processes.failure:
            self.fail("wrong_version", self.attempt.processes.failure, user_fault=self.spec.python is not None)
            return
        if self.attempt.processes.host_failure:
            self.fault("host_failed", self.attempt.processes.host_failure)
            return
        if self.reports.is_due(now_s):
            self.report()
        if self.watch.is_due(now_s):
            self.inspect(self.attempt, now_s)
        self.inputs.look(now_s)
        if self.phase == "running":
            self.oversee_devices(self.attempt)

    def report_checkpoint(self) -> None:
        """Report a checkpoint when it is on disk, whatever was said of it."""
        if (step := self.checkpoints.find_new()) is not None:
            self.context.emit(Checkpointed(**self.common, step=step))

    def inspect(self, attempt: Attempt, now_s: float) -> None:
        """Find checkpoints, hangs, and scripts that never call `springtide.init`."""
        self.report_checkpoint()
        init_s = self.context.options.init_s
        late = [process for process in attempt.ranked if process.is_late(now_s, init_s)]
        if late and self.spec.elastic:
            self.fail("no_init", environment.describe_missing_init(f"within {init_s:g} s"))
            return
        if self.progress.finished:
            return
        hang = self.watch.check(attempt, self.progress, now_s)
        if hang is not None:
            self.fault(hang.cause, hang.describe(attempt.hosts), is_apart=hang.cause == "hung")

    def oversee_devices(self, attempt: Attempt) -> None:
        """Begin a change if other devices or workers are wanted; report it if they are there already."""
        wanted, workers = self.wanted, self.workers
        misplaced = self.spec.elastic and workers is not None and not attempt.is_mapped(workers)
        if set(wanted) != set(attempt.devices) or misplaced:
            if not self.spec.elastic:
                self.clear(None)
            elif workers is not None and attempt.can_change and self.context.may_use(self.job, wanted):
                self.phase = "resizing"
                self.heading = self.assigned.generation
                attempt.begin_change(wanted, workers)
        elif self.reached != self.assigned.generation:
            self.heading = self.assigned.generation
            self.complete_change(self.progress.step, 0.0)
