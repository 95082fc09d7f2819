"""One job on this machine: from its instructions and its processes' words to what is done next.

A crew starts its processes, resizes them in place, ends them with a grace, and starts them again from the last
checkpoint when they are lost, hang or crash. It never waits: `tick` moves it on. One start is an `Attempt`; what exit
codes mean is in `verdicts`, what counts as a hang in `watches`, when to give up in `restarts`. A probe is the crew of
`surveyors`.
"""

import signal
import time
from pathlib import Path

from springtide.errors import SpringtideError
from springtide.executors.local.jobs import environment
from springtide.executors.local.jobs.attempt import AgentContext, Attempt
from springtide.executors.local.jobs.attempt_progress import AttemptProgress
from springtide.executors.local.jobs.backoff import Restarts
from springtide.executors.local.jobs.checkpoint_folder import CheckpointFolder
from springtide.executors.local.jobs.exit_causes import ExitCause, describe_code
from springtide.executors.local.jobs.hangs import Watch
from springtide.executors.local.jobs.job_events import JobEvents
from springtide.executors.local.jobs.roster_change import Workers, fit_devices
from springtide.executors.local.jobs.worker_logs import LogBook, read_tail
from springtide.executors.local.journal import AssignedJob
from springtide.executors.local.json_lines import Message
from springtide.executors.local.processes.worker_processes import STORE, WorkerProcess
from springtide.executors.protocol import Event, Running, Stop


class JobRunner:
    """One job.

    `phase` is waiting (for its next start), starting, running, resizing, settling (after a failure, for the one that
    explains it), stopping (in its grace), clearing (killed, not yet gone) or over.
    """

    def __init__(self, house: AgentContext, standing: AssignedJob) -> None:
        self.house = house
        self.standing = standing
        self.spec = standing.order.spec
        self.job = standing.order.job
        self.logs = LogBook(Path(self.spec.log_dir))
        self.reports = JobEvents(self.job, lambda: self.standing.generation, house.tell)
        self.phase = "waiting"
        self.until_s = 0.0
        self.attempt: Attempt | None = None
        self.words = AttemptProgress(time.monotonic(), step=standing.step)
        self.watch = Watch(house.options.patience)
        self.looked_s = self.reported_s = 0.0
        self.shelf = CheckpointFolder(Path(self.spec.checkpoint.dir))
        self.restarts = Restarts(standing.step, house.options.futile)
        #: How many logical workers there should be; None once a start that counted on it has failed.
        self.expected = self.spec.expected_workers
        #: The generation whose devices the processes use, and the one that a change under way leads to.
        self.reached = self.heading = -1
        #: What to tell when the processes are gone; None: start again.
        self.last: Event | None = None
        #: Why the agent itself ends the job, if it does: the lease, or its own end.
        self.leaving: str | None = None
        self.abandoned = False

    @property
    def workers(self) -> Workers | None:
        """The logical workers and where they go; None while nobody knows how many there are."""
        return self.standing.find_workers(self.expected)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The devices to use now."""
        devices, workers = self.standing.devices, self.workers
        return fit_devices(devices, workers.total if workers else None) if self.spec.elastic else devices

    @property
    def in_use(self) -> set[str]:
        """The devices on which processes of this job may be alive."""
        return self.attempt.processes.in_use if self.attempt is not None else set()

    @property
    def is_ending(self) -> bool:
        """Whether the job is to give its devices back."""
        return self.standing.ending is not None or self.leaving is not None

    @property
    def is_over(self) -> bool:
        """Whether the last event was told."""
        return self.phase == "over"

    def describe(self) -> Running:
        """The job as `running()` shows it."""
        alive = self.attempt.processes.alive() if self.attempt is not None else []
        known = self.phase in ("starting", "running", "resizing")
        state = self.phase if known else "recovering" if self.restarts.count else "starting"
        return Running(
            job=self.job,
            generation=self.standing.generation,
            devices=self.standing.devices,
            state="stopping" if self.is_ending else state,
            step=self.words.step,
            total_steps=self.words.total_steps,
            pids=tuple(member.pid for member in alive if member.pid is not None),
        )

    # Starting and hearing.

    def launch(self) -> None:
        """Start the processes, from the last checkpoint if there is one."""
        self.phase = "starting"
        self.watch = Watch(self.house.options.patience)
        self.words = AttemptProgress(time.monotonic(), step=self.words.step, total_steps=self.words.total_steps)
        problem = environment.prepare(self.spec)
        if problem is not None:
            self.fail(*problem)
            return
        self.attempt = self.make_attempt()
        self.attempt.processes.listen_to(self.hear, self.keep_output, self.note_end)

    def make_attempt(self) -> Attempt:
        """New processes for the job, not yet heard of."""
        return Attempt(self.house, self.standing, self.restarts.count)

    def keep_output(self, member: WorkerProcess, data: bytes) -> None:
        """Write what a process prints to the log of its rank."""
        if self.attempt is not None:
            self.logs.write(self.attempt.rank_of(member), data)

    def hear(self, member: WorkerProcess, message: Message) -> None:
        """Act on a word of a process; all but the store's count only from rank 0."""
        if self.attempt is None or self.phase in ("clearing", "over"):
            return
        try:
            self.understand(self.attempt, member, message)
        except (KeyError, TypeError, ValueError) as error:
            self.fail("crashed", f"process {member.name} said {message} to the agent, which means nothing ({error!r})")
        except (OSError, SpringtideError) as error:
            self.fail("agent_error", f"the job's processes could not be started: {error}", user_fault=False)

    def understand(self, attempt: Attempt, member: WorkerProcess, message: Message) -> None:
        """Act on a word; one that is not of `training.channels` raises."""
        if member.name == STORE:
            attempt.meet(str(message["address"]), self.wanted, self.workers)
            if not self.spec.elastic:
                self.begin(0)
        elif attempt.speaks_for_all(member):
            if attempt.is_takeover(member) and message.get("event") in ("planned", "progressed"):
                self.complete_change(self.words.step, time.monotonic() - (self.words.stepped_s or attempt.began_s))
            self.words.note(message, time.monotonic())
            self.act(message)

    def act(self, message: Message) -> None:
        """Do what a word of rank 0 calls for."""
        match message.get("event"):
            case "planned":
                self.note_plan()
            case "progressed":
                self.note_step()
            case "resized":
                self.complete_change(self.words.step, float(message["pause_s"]))
            case "checkpoint_failing":
                reason = str(message.get("reason", "the disk may be full"))
                self.reports.tell_checkpoint_failing(self.words.step, reason)
            case "warned":
                self.reports.tell_warning(str(message["text"]))
            case "resumed":
                for problem in message.get("passed_over", ()):
                    self.reports.tell_warning(f"checkpoint passed over: {problem}; goes on from step {message['step']}")
            case "logged":
                self.logs.metrics.write(self.words.step, message["metrics"], time.time())

    def note_plan(self) -> None:
        """The script has told its goal and is about to take steps."""
        assert self.attempt is not None
        if self.phase == "starting":
            self.begin(self.words.step)
        device_type = self.house.devices[self.attempt.devices[0]].type
        self.reports.tell_info(self.words, device_type, self.attempt.processes.fork.torch_version)

    def begin(self, step: int) -> None:
        """The processes run; a gang, which may never say a word, was asked for."""
        assert self.attempt is not None
        self.phase = "running"
        self.reached = self.standing.generation
        self.reports.tell_started(self.attempt.devices, step)

    def note_step(self) -> None:
        """A global step was completed."""
        self.restarts.note_step(self.words.step)

    def complete_change(self, step: int, pause_s: float) -> None:
        """The change of devices has been made."""
        assert self.attempt is not None
        self.attempt.complete_change()
        if self.phase == "resizing":
            self.phase = "running"
        self.words.speed.pause()
        self.reached = self.heading
        self.reports.tell_resized(self.heading, self.attempt.devices, step, pause_s)

    def report(self) -> None:
        """Tell how far the job is, if it has moved."""
        self.reported_s = time.monotonic()
        if self.attempt is not None:
            self.reports.tell_progress(self.words, len(self.attempt.roster.names))

    # Ends.

    def note_end(self, member: WorkerProcess) -> None:
        """A process has ended: as it should, or the first of a failure."""
        attempt = self.attempt
        if attempt is None or self.phase in ("clearing", "over") or not attempt.note_end(member):
            return
        if attempt.is_done(self.words.finished):
            if self.phase == "stopping":
                self.conclude_stop()
            else:
                self.conclude()
        elif self.phase in ("starting", "running", "resizing") and member.is_suspicious:
            self.phase = "settling"
            self.until_s = time.monotonic() + self.house.options.settle_s

    def conclude(self) -> None:
        """Judge by the codes of those that have ended, and act on the verdict."""
        assert self.attempt is not None
        verdict = self.attempt.judge(self.words.finished)
        match verdict.word:
            case "finished":
                self.finish()
            case "killed" | "store_lost":
                self.fault("killed", verdict.describe())
            case "crashed":
                self.crash(verdict)
            case "no_init":
                self.fail("no_init", environment.describe_missing_init("before it ended"), 0)
            case _:
                self.fail("early_exit", self.words.describe_early_exit(), 0)

    def finish(self) -> None:
        """The job is done."""
        self.report()
        self.look_for_checkpoint()
        self.clear(self.reports.make_finished(self.words))

    def crash(self, verdict: ExitCause) -> None:
        """The user's code has failed: try again while retries are left. A result not saved is no fault of it."""
        assert self.attempt is not None
        if self.words.result_failure:
            self.fault("unsaved", f"the result could not be saved: {self.words.result_failure}")
            return
        rank = self.attempt.rank_of(self.attempt.processes.members[verdict.process])
        said = " | ".join(read_tail(self.logs.path_of(rank))) or "it said nothing"
        reason = f"rank {rank} {describe_code(verdict.code)}: {said}"
        if self.is_guess:
            self.expected = None
            self.fault("unexpected", f"{reason}; it starts again in one process, until the script has said more")
        elif verdict.can_retry and self.may_retry:
            self.fault("crashed", reason, user_fault=True)
        else:
            self.fail("crashed", reason, verdict.code)

    @property
    def is_guess(self) -> bool:
        """Whether the processes were started for a number of workers that nobody has said since."""
        said = self.spec.logical_workers or self.standing.logical_workers
        return self.spec.elastic and self.expected is not None and said is None

    @property
    def may_retry(self) -> bool:
        """Whether the user's code may crash once more."""
        return self.standing.crashes < self.spec.retries

    def fail(self, code: str, reason: str, exit_code: int | None = None, user_fault: bool = True) -> None:
        """Give the job up."""
        self.report()
        self.clear(self.reports.make_failed(self.words.step, code, reason, exit_code, user_fault))

    def fault(self, cause: str, reason: str, user_fault: bool = False) -> None:
        """Start again from the last checkpoint, unless that has led nowhere too often."""
        if self.restarts.are_hopeless:
            why = f"{reason}; {self.restarts.futile} restarts in a row made no step"
            self.fail("no_progress", why, user_fault=False)
            return
        self.reports.tell_fault(cause, reason, self.words.step, user_fault)
        self.until_s = self.restarts.add(time.monotonic())
        self.clear(None)

    def clear(self, last: Event | None) -> None:
        """Kill what is left; when it has gone, tell the last event, or start again."""
        self.phase = "clearing"
        self.last = last
        if self.attempt is not None:
            self.attempt.processes.kill_all()

    def note_cleared(self) -> None:
        """The processes are gone."""
        if self.attempt is not None:
            self.attempt.processes.close()
            self.attempt = None
        if self.abandoned:
            self.phase = "over"
        elif self.last is not None or self.is_ending:
            self.end(self.last or self.reports.make_stopped(self.words, self.standing.ending, self.leaving))
        else:
            self.phase = "waiting"

    def end(self, event: Event) -> None:
        """Tell the last event."""
        self.phase = "over"
        self.logs.close()
        self.house.tell(event)

    def abandon(self) -> None:
        """End without a word: a newer start takes the job's place."""
        self.abandoned = True
        self.clear(None)

    def lose_fork(self) -> None:
        """The fork server has gone, and with it the word on how the processes end."""
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
        elif self.words.has_stepped:
            attempt.command({"do": "terminate"})
            self.give_grace()
        elif not self.spec.elastic and not attempt.connected:
            for member in attempt.members:
                member.signal(signal.SIGTERM)
            self.give_grace()
        else:
            self.clear(None)

    def give_grace(self) -> None:
        """Let the processes end by themselves: in the time told, or in what their steps and checkpoints call for."""
        self.phase = "stopping"
        ending = self.standing.ending
        told_s = ending.grace_s if isinstance(ending, Stop) else None
        fitting_s = self.house.options.find_grace_s(self.words.speed.longest_gap_s, self.shelf.measure())
        self.until_s = time.monotonic() + (fitting_s if told_s is None else told_s)

    def conclude_stop(self) -> None:
        """All processes have ended in their grace: stopped, unless they had just finished."""
        assert self.attempt is not None
        if self.words.finished and not any(self.attempt.codes.values()):
            self.finish()
        else:
            self.clear(None)

    # Time.

    def tick(self, now_s: float) -> None:
        """Do what time calls for."""
        if self.is_ending:
            self.stop()
        match self.phase:
            case "waiting" if now_s >= self.until_s and self.house.may_take(self.job, self.wanted):
                self.launch()
            case "clearing" if self.attempt is None or self.attempt.processes.are_gone:
                self.note_cleared()
            case "settling" if now_s >= self.until_s:
                self.conclude()
            case "stopping" if now_s >= self.until_s or self.hangs(now_s):
                self.clear(None)
            case "starting" | "running" | "resizing":
                self.oversee(now_s)

    def oversee(self, now_s: float) -> None:
        """Look after processes that run."""
        assert self.attempt is not None
        if self.attempt.processes.fork.failure:
            self.fail("wrong_version", self.attempt.processes.fork.failure, user_fault=self.spec.python is not None)
            return
        if now_s - self.reported_s >= self.house.options.report_s:
            self.report()
        if now_s - self.looked_s >= self.house.options.look_s:
            self.looked_s = now_s
            self.look(self.attempt, now_s)
        if self.phase == "running":
            self.oversee_devices(self.attempt)

    def look_for_checkpoint(self) -> None:
        """Tell of a checkpoint when it is on disk, whatever was said of it."""
        if (step := self.shelf.look()) is not None:
            self.reports.tell_checkpoint(step)

    def look(self, attempt: Attempt, now_s: float) -> None:
        """Find checkpoints, hangs, and scripts that never call `springtide.init`."""
        self.look_for_checkpoint()
        init_s = self.house.options.init_s
        late = [member for member in attempt.members if member.is_late(now_s, init_s)]
        if late and self.spec.elastic:
            self.fail("no_init", environment.describe_missing_init(f"within {init_s:g} s"))
            return
        if self.words.finished:
            return
        hang = self.watch.look(attempt.look(), self.words.stepped_s, self.words.speed.longest_gap_s, now_s)
        if hang is not None:
            self.fault(hang.cause, hang.reason)

    def hangs(self, now_s: float) -> bool:
        """Whether a process that should end will never do so by itself, because it is stopped (SIGSTOP)."""
        assert self.attempt is not None
        if now_s - self.looked_s < self.house.options.look_s:
            return False
        self.looked_s = now_s
        hang = self.watch.look(self.attempt.look(), None, 0.0, now_s)
        return hang is not None

    def oversee_devices(self, attempt: Attempt) -> None:
        """Begin a change if other devices or workers are wanted; say so if they are there already."""
        wanted, workers = self.wanted, self.workers
        misplaced = self.spec.elastic and workers is not None and not attempt.is_mapped(workers)
        if set(wanted) != set(attempt.devices) or misplaced:
            if not self.spec.elastic:
                self.clear(None)
            elif workers is not None and attempt.can_change and self.house.may_take(self.job, wanted):
                self.phase = "resizing"
                self.heading = self.standing.generation
                attempt.begin_change(wanted, workers)
        elif self.reached != self.standing.generation:
            self.heading = self.standing.generation
            self.complete_change(self.words.step, 0.0)
