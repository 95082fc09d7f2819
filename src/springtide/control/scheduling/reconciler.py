"""The loop that keeps promises: read the executor, ask the policy, write down, act. The live sibling of the simulator.

One thread owns the records and the world. Others hand it functions through `call` and wait; all that is handed in at
one time is answered by one decision. Every step commits before it acts, so a kill at any moment loses nothing:
instructions that were not sent are sent again, and the executor ignores those it has seen.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from typing import Any, TypeVar

from springtide.control.clock import ClockSource
from springtide.control.notices.notice_decisions import decide_notices
from springtide.control.scheduling import sentences, transitions, waiting
from springtide.control.scheduling.effects import follow_decision
from springtide.control.scheduling.events import EventHandler, Lap
from springtide.control.scheduling.job_changes import Decided
from springtide.control.scheduling.live_world import PlatformWorld
from springtide.control.scheduling.loop import recovery, timers
from springtide.control.scheduling.loop.alarms import Alarm
from springtide.control.scheduling.loop.bad_steps import BadSteps
from springtide.control.scheduling.loop.calls import Call, CallQueue, CallReply, answer_failure
from springtide.control.scheduling.loop.decision_failures import DecisionFailures, note_failure
from springtide.control.scheduling.loop.effort import Effort
from springtide.control.scheduling.loop.health import Health, show_safely
from springtide.control.scheduling.loop.non_blocking_executor import UnansweredError
from springtide.control.scheduling.loop.putting_aside import PuttingAside
from springtide.control.scheduling.loop.sending import InstructionSender
from springtide.control.scheduling.loop.transactions import attempt, take_step, try_call
from springtide.control.scheduling.machines import forgotten_nodes, node_drains
from springtide.control.scheduling.machines.inventory import Inventory
from springtide.control.scheduling.server_context import Context, ServerOptions
from springtide.control.storage import job_secrets
from springtide.control.storage.database.databases import is_unavailable
from springtide.control.storage.staging import Staging, StagingMark
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.decisions import Decide, Decision, Status
from springtide.core.job_states import ENDED
from springtide.core.jobs import Job, Purpose
from springtide.errors import SpringtideError, StateError
from springtide.executors.protocol import Event, Executor, Instruction, Running
from springtide.policies import decide, find_policy

T = TypeVar("T")
logger = logging.getLogger("springtide.control")

POLL_S = 0.05  # between looks at the executor while anything runs
IDLE_POLL_S = 0.5
AUDIT_S = 2.0  # between comparisons of what should run with what does
MOST_DECISIONS = 3  # in one step: the second reserves devices for an offer, the third acts on one taken at once
TIMERS_S = 0.5  # between looks at deadlines, offers and budgets
MOST_LAG_S = 2.0  # how far a step's time may lag behind the clock (see read_clock)
FAILURES = "policy_failures"  # the fact that counts them
UNANSWERED_S = 2.0  # after which an executor that was asked counts as lost; a new agent is there by then
MOST_QUARANTINED = 1000  # looked at for what was put aside before


@dataclass(frozen=True, slots=True)
class Heard:
    """What the executor has told: events, what runs if that was asked, and what it refuses for good."""

    events: Sequence[Event] = ()
    running: Sequence[Running] | None = None
    refused: Sequence[tuple[Instruction, Exception]] = ()


@dataclass(frozen=True, slots=True)
class ReconcilerMark:
    """Everything that a transaction may change, as it was."""

    staging: StagingMark
    world: dict[str, Any]
    cursor: int
    dirty: bool
    laps: dict[str, Lap]
    begun: dict[str, int]
    next_timers_s: float
    suspects: frozenset[str]
    alarm: Alarm
    failures: DecisionFailures


class Reconciler:
    """Keeps the world as the store says, and the store true to the world."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        inventory: Inventory,
        state_dir: StateDir,
        source: ClockSource,
        options: ServerOptions,
        stream: str = "",
    ) -> None:
        self.store, self.executor, self.stream = store, executor, stream
        self.policy = find_policy(options.policy)
        self.decide: Decide = partial(decide, self.policy)
        clock = recovery.restore_clock(store, source)
        world = PlatformWorld(recovery.restore_inventory(inventory, store, options), options.price_table)
        self.context = Context(Staging(store, clock.now_s()), world, state_dir, clock, options)
        staging, counts_load = self.context.staging, options.outside_load
        self.event_handler = EventHandler(staging, world, state_dir, clock.source, self.decide, counts_load)
        self.cursor = recovery.restore_cursor(store, stream)
        self.alarm, self.effort, self.failures = Alarm(), Effort(), DecisionFailures()
        self.dirty = True
        self.calls = CallQueue()
        self.sender = InstructionSender(executor, ())
        self.refused: list[tuple[Instruction, Exception]] = []  # to be worked in with the next step
        self.suspects: frozenset[str] = frozenset()
        self.aside = PuttingAside(self)
        self.last_decided_s = -inf
        self._next_audit_s = self._next_timers_s = self._read_s = -inf
        self._stopping = threading.Event()
        self.health = Health()
        self.recover()

    @property
    def inventory(self) -> Inventory:
        """The devices there are now."""
        return self.context.world.inventory

    @property
    def now_s(self) -> float:
        """The platform time of the present step."""
        return self.context.staging.now_s

    def recover(self) -> None:
        """Rebuild the world from the records, as it stood; then let the executor say what became of it.

        A record that cannot be restored, or an instruction that cannot be read, costs its own job only.
        """
        self.context.world.remember(self.store.fact("memory") or {})
        self.sender.unsent, unread = recovery.read_unsent(self.store)
        job_secrets.settle_all(self.context.state_dir, self.context.staging.jobs)
        take_step(self, self.restore)
        for one, error in unread:
            self.aside.put_instruction_aside(one, error)
        self.commit()
        self.act()

    def restore(self, singly: bool) -> None:
        """Put every record back into the world, and note by which clock and from which event on."""
        staging, world, state_dir = self.context.staging, self.context.world, self.context.state_dir
        for record in list(staging.jobs.values()):
            attempt(
                self,
                partial(recovery.restore_or_hold, staging, world, state_dir, record),
                singly,
                partial(self.aside.leave_out, record.id),
            )
        forgotten_nodes.forget_absent(staging, world.inventory)
        known = {one.job for one in self.store.list_quarantine(MOST_QUARANTINED) if one.kind == "recover"}
        for job_id, why in self.store.unreadable.items():
            if job_id not in known:
                staging.put_aside("recover", job_id, why, StateError(why))
        staging.put_fact("anchor", asdict(self.context.clock.anchor))
        if self.stream:
            staging.put_fact(recovery.STREAM, self.stream)
            staging.put_fact("cursor", self.cursor)

    def rebuild(self) -> None:
        """Begin again from the store, as a new server would: after a failed step, memory may not be what is stored."""
        options = self.context.options
        world = PlatformWorld(recovery.restore_inventory(self.inventory, self.store, options), options.price_table)
        staging, handler = Staging(self.store, self.now_s), self.event_handler
        self.context.staging, self.context.world = handler.staging, handler.world = staging, world
        self.cursor = recovery.restore_cursor(self.store, self.stream)
        self.suspects, self._next_timers_s = frozenset(), -inf  # what was seen and done since the commit was not
        self.dirty = True
        self.recover()

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Have a function run by the reconciler's thread; done when its effects are decided and stored."""
        return self.calls.put(function)

    def run(self) -> None:
        """Step until told to stop. After a step that failed whole, the next one begins from the store."""
        failed, bad = False, BadSteps()
        while not self._stopping.is_set():
            try:
                if failed:
                    self.rebuild()
                failed = False
                self.step(self.rest_s())
                bad.forget()
            except Exception as error:
                pause_s = bad.note(error)
                self.health.note_failure(error)
                failed = True
                self.calls.turn_away(show_safely(error))
                self._stopping.wait(pause_s)

    def stop(self) -> None:
        """End the loop after the present step."""
        self._stopping.set()
        self.calls.wake()

    def rest_s(self) -> float:
        """How long nothing needs to be looked at; never beyond the instant that the policy has asked for."""
        busy = any(record.devices for record in self.context.staging.jobs.values()) or self.sender.unsent
        rest_s = POLL_S if busy else IDLE_POLL_S
        due_s = self.alarm.due_s
        if due_s > self.now_s + MOST_LAG_S:
            return rest_s
        return min(rest_s, max(0.0, due_s - self.context.clock.now_s()))

    def step(self, wait_s: float = 0.0) -> None:
        """Take what was handed in and what happened, decide once if that calls for it, commit, answer, act.

        All of it is one transaction. If something in it cannot be worked in or stored, all is done again one by one,
        each in a transaction of its own, and what fails then costs itself only.
        """
        first = self.calls.wait(wait_s)
        self.read_clock()
        calls, answers = self.calls.take(first), list[CallReply]()
        try:
            # a look at the executor is a hand-over to another thread and back: a request does not wait for the next one
            is_fresh = first is not None and time.monotonic() - self._read_s < POLL_S
            heard = Heard() if is_fresh else self.read_executor()
            heard, self.refused = replace(heard, refused=self.refused), []
            take_step(self, partial(self.work, calls, heard, answers))
        except BaseException as error:
            answer_failure(calls, answers, show_safely(error), self.was_stored())
            raise
        for answer in answers:
            answer.give()
        self.act()
        self.health.note_step()

    def work(self, calls: Sequence[Call], heard: Heard, answers: list[CallReply], singly: bool) -> None:
        """Work in calls, events and what time brings, then decide; `singly`: each is committed before the next."""
        answers.clear()
        for function, future in calls:
            value = try_call(self, function, singly)
            answers.append(CallReply(future, value, is_final=singly or isinstance(value, BaseException)))
        for event in heard.events:
            attempt(self, partial(self.handle, event), singly, partial(self.aside.put_event_aside, event))
        for refused, error in heard.refused:
            self.aside.attempt_for("refused", refused.job, partial(self.give_up, refused, error), singly)
        if heard.running is not None:
            self.audit({one.job: one for one in heard.running}, singly)
        if self.now_s >= self._next_timers_s:
            self._next_timers_s = self.now_s + TIMERS_S
            self.check_time(singly)
        for _ in range(MOST_DECISIONS):
            if self.dirty or self.now_s >= self.alarm.due_s:
                attempt(self, self.make_decision, singly, self.bear_failure)

    def check_time(self, singly: bool) -> None:
        """Look at what only time brings."""
        staging, world = self.context.staging, self.context.world

        def check(job_id: str) -> None:
            record = staging.jobs.get(job_id)
            if record is not None and record.active:  # what time brought another job may have ended it
                self.dirty |= timers.check_job(staging, world, record)
                self.dirty |= waiting.check_job(self.context, job_id)

        for record in staging.list_active():
            self.aside.attempt_for("time", record.id, partial(check, record.id), singly)
        overdue: list[tuple[str, str]] = []
        attempt(
            self,
            lambda: overdue.extend(node_drains.list_overdue(staging, world)),
            singly,
            partial(self.aside.put_aside, "drains", None, ""),
        )
        for node, job_id in overdue:
            leave = partial(node_drains.end_grace, staging, world, self.context.state_dir, node, job_id)
            self.aside.attempt_for("drains", job_id, leave, singly)

    def mark(self) -> "ReconcilerMark":
        """Everything that a transaction may change, as it is."""
        handler = self.event_handler
        return ReconcilerMark(
            self.context.staging.mark(),
            self.context.world.mark(),
            self.cursor,
            self.dirty,
            dict(handler.laps),
            dict(handler.begun),
            self._next_timers_s,
            self.suspects,
            replace(self.alarm),
            replace(self.failures),
        )

    def roll_back(self, mark: "ReconcilerMark") -> None:
        """Be again as at a mark."""
        self.context.staging.roll_back(mark.staging)
        self.context.world.roll_back(mark.world)
        self.cursor, self.dirty = mark.cursor, mark.dirty
        self.event_handler.laps, self.event_handler.begun = mark.laps, mark.begun
        self._next_timers_s, self.suspects = mark.next_timers_s, mark.suspects
        self.alarm, self.failures = mark.alarm, mark.failures

    def was_stored(self) -> bool | None:
        """Whether the last commit, which failed, was stored nevertheless; None if the store does not say."""
        try:
            return self.store.count_commits() > self.context.staging.commits
        except Exception:
            logger.exception("the store does not say whether the last commit was stored")
            return None

    def read_clock(self) -> None:
        """Fix the time of this step; everything in it sees the same instant, and it never goes back.

        The first step after the instant that the policy asked for is taken as of that instant, as in the simulator:
        policies that work in rounds know their boundaries by it.
        """
        now_s = self.context.clock.now_s()
        asked_s = self.alarm.wake_at_s
        if self.now_s < asked_s <= now_s <= asked_s + MOST_LAG_S:
            now_s = asked_s
        self.context.staging.now_s = max(self.now_s, now_s)

    def read_executor(self) -> Heard:
        """What happened, and now and then what runs."""
        audit, self._read_s = self.now_s >= self._next_audit_s, time.monotonic()
        try:
            self.send()
            running = self.executor.running() if audit else None
            outage = self.executor.outage() if audit else self.health.outage
            events = self.executor.events(self.cursor)
        except Exception as error:  # an executor may be anybody's code
            self.lose_executor(error)
            return Heard()
        if self.health.executor_lost:
            self.health.note_executor("")
            self.context.staging.add_event("executor_back", "the executor answers again")
        if self.health.note_outage(outage):
            self.context.staging.add_event(*sentences.tell_outage(outage))
        if audit:
            self._next_audit_s = self.now_s + AUDIT_S
        return Heard(events, running)

    def handle(self, event: Event) -> None:
        """Work in one event."""
        self.dirty |= self.event_handler.handle(event)
        self.hear(event.seq)

    def hear(self, seq: int) -> None:
        """Note that the events up to a number are worked in."""
        self.cursor = max(self.cursor, seq)
        self.context.staging.put_fact("cursor", self.cursor)

    def lose_executor(self, error: Exception) -> None:
        """Record, once, that the executor does not answer; jobs go on without us meanwhile."""
        waited_s = error.waited_s if isinstance(error, UnansweredError) else inf
        if waited_s < UNANSWERED_S:
            return
        if not self.health.executor_lost:
            sentence = f"the executor does not answer: {show_safely(error)}"
            self.context.staging.add_event("executor_lost", sentence)
            logger.warning(sentence, exc_info=None if isinstance(error, OSError | SpringtideError) else error)
        self.health.note_executor(show_safely(error), waited_s if waited_s < inf else 0.0)

    def audit(self, running: Mapping[str, Running], singly: bool) -> None:
        """Start what should run and does not (seen twice), cancel what runs and should not."""
        missing = {
            record.id
            for record in self.context.staging.jobs.values()
            if record.devices and record.id not in running and not self.sender.concerns(record.id)
        }
        lost, self.suspects = missing & self.suspects, frozenset(missing - self.suspects)
        for job_id in sorted(lost):
            self.aside.attempt_for("audit", job_id, partial(self.start_lost, job_id), singly)
        for name, one in running.items():
            self.aside.attempt_for(
                "audit", name, partial(transitions.end_stray, self.context.staging, name, one), singly
            )

    def start_lost(self, job_id: str) -> None:
        """Start a job again that should run and does not."""
        context = self.context
        context.staging.add_event("lost", "the executor no longer knows it", job_id)
        transitions.start_again(context.staging, context.world, context.state_dir, job_id)

    def make_decision(self) -> None:
        """Ask the policy, and stage what follows from what it says; one that fails costs this decision only."""
        staging = self.context.staging
        staging.now_s = self.last_decided_s = now_s = max(staging.now_s, self.last_decided_s + 1e-6)
        mark = self.mark()
        self.alarm.retry_at_s = inf
        try:
            decision = self.take_decision(now_s)
        except Exception as error:  # a policy may be anybody's code
            if is_unavailable(error):
                raise
            self.roll_back(mark)
            self.bear_failure(error)
            return
        self.failures.forget()
        self.alarm.set(decision.wake_at_s, now_s)

    def take_decision(self, now_s: float) -> Decision:
        """What the policy decides, done to the world, and staged with all that follows from it."""
        staging, world = self.context.staging, self.context.world
        started_s = time.thread_time()
        snapshot = world.snapshot()
        self.dirty = False
        decision = self.decide(now_s, snapshot)
        asked = {job_id: snapshot.jobs[job_id] for job_id in decision.answers}
        decided = Decided(decision, asked, world.apply(decision, now_s))
        self.effort.note(time.thread_time() - started_s)
        self.dirty = follow_decision(staging, world, self.context.state_dir, decided, self.admits)
        return decision

    def bear_failure(self, error: Exception) -> None:
        """Record that no decision could be made or stored.

        Jobs keep their devices, newcomers wait, and the policy is asked again shortly.
        """
        staging, now_s, policy = self.context.staging, self.now_s, self.context.options.policy
        sentence = sentences.tell_policy_failure(policy, error)
        logger.error(sentence, exc_info=error)
        staging.put_fact(FAILURES, int(staging.read_fact(FAILURES) or 0) + 1)
        staging.add_event(sentences.POLICY_FAILED, sentence, policy=policy)
        for view in self.context.world.jobs.values():
            if view.status is Status.PENDING and view.job.purpose is Purpose.TRAIN:
                staging.stage(waiting.wait_for_policy(staging.jobs[view.job.id], sentence, now_s))
        self.dirty = False
        self.alarm.postpone(now_s)
        note_failure(self, error)

    def admits(self, job: Job) -> bool:
        """Whether the policy would admit a job now, in a copy of the world; not if it fails."""
        try:
            answer = self.decide_with(job).answers.get(job.id)
        except Exception as error:
            logger.error(sentences.tell_policy_failure(self.context.options.policy, error), exc_info=error)
            return False
        return answer is not None and answer.status is Status.ADMITTED

    def decide_with(self, job: Job) -> Decision:
        """What the policy would decide if this job came now, in a copy of the world."""
        twin = self.context.world.copy()
        twin.arrive(job, self.now_s)
        return self.decide(self.now_s, twin.snapshot())

    def commit(self) -> None:
        """Make what was staged durable; the secrets of a job that ended, in whatever way, go.

        Nothing that follows the store's commit may raise: the step would be undone in memory, and is stored.
        """
        staging, state_dir = self.context.staging, self.context.state_dir
        ended = [record.id for record in staging.batch.jobs.values() if record.state in ENDED]
        secrets = {job_id: values for job_id, values in staging.secrets.items() if job_id not in ended}
        staging.batch.notices = decide_notices(staging.batch.events, staging.jobs)
        job_secrets.put_apart(state_dir, secrets)
        try:
            self.sender.unsent += staging.commit()
        except Exception:
            if secrets and self.was_stored() is False:  # where nobody knows, the next beginning finds out
                job_secrets.drop_apart(state_dir, secrets)
            raise
        job_secrets.settle(state_dir, secrets)
        for job_id in ended:
            job_secrets.forget(state_dir, job_id)

    def act(self) -> None:
        """Send what was decided, and let the executor forget what is stored."""
        try:
            self.send()
            self.sender.acknowledge(self.cursor)
        except Exception as error:  # all is stored, and is sent again
            self.lose_executor(error)

    def send(self) -> None:
        """Send the instructions that are not known to have arrived, in order; arrived, they are forgotten with the next
        commit. What is refused for good is worked in by the next step, as all that the executor says.
        """
        self.sender.send(
            lambda one: self.context.staging.batch.sent.append((one.job, one.generation)),
            lambda one, error: self.refused.append((one, error)),
        )

    def give_up(self, instruction: Instruction, error: Exception) -> None:
        """An instruction is refused for good: its job has failed."""
        transitions.give_up(self.context.staging, self.context.world, instruction, show_safely(error))
        self.dirty = True
