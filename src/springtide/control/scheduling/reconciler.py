"""The loop that keeps promises: read the executor, ask the policy, write down, act. The live sibling of the simulator.

One thread owns the records and the world. Others hand it functions through `call` and wait; all that is handed in at
one time is answered by one decision. Every step commits before it acts, so a kill at any moment loses nothing:
instructions that were not sent are sent again, and the executor ignores those it has seen.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, replace
from functools import partial
from math import inf
from typing import Any, TypeVar

from springtide.control.clock import Anchor, Clock, ClockSource
from springtide.control.scheduling import nodes, offers, sentences, timers, transitions
from springtide.control.scheduling.context import Context, Decide, ServerOptions
from springtide.control.scheduling.effects import follow_decision
from springtide.control.scheduling.events import EventHandler
from springtide.control.scheduling.inventory import Inventory
from springtide.control.scheduling.live_jobs import fix_share, look_up, make_job, make_probe_job, needs_probe
from springtide.control.scheduling.live_world import PlatformWorld, rebuild_view
from springtide.control.scheduling.transitions import Decided
from springtide.control.storage.records import EventRecord, JobRecord
from springtide.control.storage.staging import Effects, Staging
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.decisions import Decision, Status
from springtide.core.job_states import ENDED, JobState
from springtide.core.jobs import Job, Purpose
from springtide.errors import SpringtideError
from springtide.executors.protocol import Executor, Instruction, Running
from springtide.executors.wire import load_instruction
from springtide.policies import decide, find_policy
from springtide.policies.planning.compilation import start_compiling

T = TypeVar("T")
logger = logging.getLogger("springtide.control")

POLL_S = 0.05  # between looks at the executor while anything runs
IDLE_POLL_S = 0.5
AUDIT_S = 2.0  # between comparisons of what should run with what does
MOST_DECISIONS = 3  # in one step: the second reserves devices for an offer, the third acts on one taken at once
MOST_REFUSALS = 5  # of one instruction by an executor that answers
TIMERS_S = 0.5  # between looks at deadlines, offers and budgets
MOST_LAG_S = 2.0  # of a step's time behind the clock
LEAD_S = 0.1  # before an instant that the policy asked for, it is asked too
SLOW_DECISION_S = 0.02  # of CPU: with so much to plan, compiled kernels are worth their memory
SLOW_DECISIONS = 5
RETRY_S = 1.0  # after a policy has failed it is asked again, after twice as long each time it fails again
MOST_RETRY_S = 60.0
FAILURES = "policy_failures"  # the fact that counts them


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
    ) -> None:
        self.store, self.executor = store, executor
        self.policy = find_policy(options.policy)
        self.decide: Decide = partial(decide, self.policy)
        clock = restore_clock(store, source)
        world = PlatformWorld(nodes.restore_inventory(inventory, store.fact(nodes.FACT)))
        self.context = Context(Staging(store, clock.now_s()), world, state_dir, clock, options)
        self.event_handler = EventHandler(self.context.staging, world, state_dir, clock.source, self.decide)
        self.cursor = int(store.fact("cursor") or 0)
        self.wake_at_s = self.retry_at_s = inf
        self.retry_s = RETRY_S
        self.dirty = True
        self.calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self.unsent: list[Instruction] = [load_instruction(one.body) for one in store.list_instructions()]
        self.refusals: dict[str, int] = {}  # by the key of an instruction
        self.suspects: set[str] = set()
        self.last_decided_s = -inf
        self.slow_decisions = 0
        self._next_audit_s = self._next_timers_s = -inf
        self._stopping = threading.Event()
        self._unreachable = False
        self._acknowledged = 0
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
        """Rebuild the world from the records, as it stood; then let the executor say what became of it."""
        staging, world, inventory, now_s = self.context.staging, self.context.world, self.inventory, self.now_s
        world.remember(self.store.fact("memory") or {})
        for record in list(staging.jobs.values()):
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
        staging.put_fact("anchor", asdict(self.context.clock.anchor))
        self.flush()

    def rebuild(self) -> None:
        """Begin again from the store, as a new server would: after a failed step, memory may not be what is stored."""
        world = PlatformWorld(nodes.restore_inventory(self.inventory, self.store.fact(nodes.FACT)))
        staging, handler = Staging(self.store, self.now_s), self.event_handler
        self.context.staging, self.context.world = handler.staging, handler.world = staging, world
        self.cursor = int(self.store.fact("cursor") or 0)
        self.unsent = [load_instruction(one.body) for one in self.store.list_instructions()]
        self.dirty = True
        self.recover()

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Have a function run by the reconciler's thread; done when its effects are decided and stored."""
        future: Future[T] = Future()
        self.calls.put((function, future))
        return future

    def run(self) -> None:
        """Step until told to stop. What goes wrong in one step is logged, and the next one begins from the store."""
        failed = False
        while not self._stopping.is_set():
            try:
                if failed:
                    self.rebuild()
                failed = False
                self.step(self.rest_s())
            except Exception:
                logger.exception("a step of the reconciler failed; it begins again from what is stored")
                failed = True
                time.sleep(POLL_S)

    def stop(self) -> None:
        """End the loop after the present step."""
        self._stopping.set()
        self.calls.put(None)

    def rest_s(self) -> float:
        """How long nothing needs to be looked at; never beyond the instant that the policy has asked for."""
        busy = any(record.devices for record in self.context.staging.jobs.values()) or self.unsent
        rest_s = POLL_S if busy else IDLE_POLL_S
        due_s = min(self.wake_at_s, self.retry_at_s)
        if due_s > self.now_s + MOST_LAG_S:
            return rest_s
        return min(rest_s, max(0.0, due_s - self.context.clock.now_s()))

    def step(self, wait_s: float = 0.0) -> None:
        """Take what was handed in and what happened, decide once if that calls for it, commit, act, answer."""
        answered = self.take_calls(wait_s)
        try:
            self.read_executor()
            if self.now_s >= self._next_timers_s:
                self._next_timers_s = self.now_s + TIMERS_S
                context, price = self.context, self.context.options.price_per_device_hour
                self.dirty |= timers.check_time(context.staging, context.world, context.state_dir, price)
            for _ in range(MOST_DECISIONS):
                if self.dirty or self.now_s >= min(self.wake_at_s, self.retry_at_s):
                    self.make_decision()
            self.flush()
        except BaseException as error:
            for future, _ in answered:
                future.set_exception(error)
            raise
        for future, value in answered:
            if isinstance(value, BaseException):
                future.set_exception(value)
            else:
                future.set_result(value)

    def take_calls(self, wait_s: float) -> list[tuple["Future[Any]", Any]]:
        """Run what was handed in; returns who waits, with the value or the error to give them after the commit."""
        answered: list[tuple[Future[Any], Any]] = []
        try:
            item = self.calls.get(timeout=wait_s) if wait_s > 0 else None
        except queue.Empty:
            item = None
        self.read_clock()
        try:
            while True:
                if item is not None:
                    answered.append((item[1], self.run_call(item[0])))
                item = self.calls.get_nowait()
        except queue.Empty:
            return answered

    def read_clock(self) -> None:
        """Let the time be what it is now, for all that a step does; it never goes back.

        The first step after the instant that the policy asked for is taken as of that instant, as in the simulator:
        policies that work in rounds know their boundaries by it.
        """
        now_s = self.context.clock.now_s()
        if self.now_s < self.wake_at_s <= now_s <= self.wake_at_s + MOST_LAG_S:
            now_s = self.wake_at_s
        self.context.staging.now_s = max(self.now_s, now_s)

    def run_call(self, function: Callable[[], Any]) -> Any:
        """The value of a function, or the error it raised."""
        try:
            return function()
        except SpringtideError as error:
            return error
        except Exception as error:
            logger.exception("a request failed inside the reconciler")
            return error

    def read_executor(self) -> None:
        """Work in what happened, and now and then compare what runs with what should."""
        audit = self.now_s >= self._next_audit_s
        try:
            self.send()
            running = self.executor.running() if audit else ()
            events = self.executor.events(self.cursor)
        except (OSError, SpringtideError) as error:
            self.lose_executor(error)
            return
        if self._unreachable:
            self._unreachable = False
            self.context.staging.add_event("executor_back", "the executor answers again")
        for event in events:
            self.dirty |= self.event_handler.handle(event)
            self.cursor = max(self.cursor, event.seq)
        if events:
            self.context.staging.put_fact("cursor", self.cursor)
        if audit:
            self._next_audit_s = self.now_s + AUDIT_S
            self.audit({one.job: one for one in running})

    def lose_executor(self, error: Exception) -> None:
        """Record, once, that the executor does not answer; jobs go on without us meanwhile."""
        if not self._unreachable:
            self._unreachable = True
            sentence = f"the executor does not answer: {error}"
            self.context.staging.add_event("executor_lost", sentence)
            logger.warning(sentence)

    def audit(self, running: Mapping[str, Running]) -> None:
        """Start what should run and does not (seen twice), cancel what runs and should not."""
        context = self.context
        missing = {
            record.id
            for record in context.staging.jobs.values()
            if record.devices and record.id not in running and not any(one.job == record.id for one in self.unsent)
        }
        for job_id in sorted(missing & self.suspects):
            sentence = "the executor no longer knows it; it starts again"
            context.staging.add_event("lost", sentence, job_id)
            transitions.start_again(context.staging, context.world, context.state_dir, job_id)
        self.suspects = missing - self.suspects
        for name, one in running.items():
            transitions.end_stray(context.staging, name, one)

    def make_decision(self) -> None:
        """Ask the policy, and stage what follows from what it says; one that fails costs this decision only."""
        staging, world = self.context.staging, self.context.world
        staging.now_s = self.last_decided_s = now_s = max(staging.now_s, self.last_decided_s + 1e-6)
        snapshot = world.snapshot()
        self.dirty, self.retry_at_s = False, inf
        started_s = time.thread_time()
        try:
            decision = self.decide(now_s, snapshot)
            asked = {job_id: snapshot.jobs[job_id] for job_id in decision.answers}
            decided = Decided(decision, asked, world.apply(decision, now_s))
        except Exception as error:  # a policy may be anybody's code
            world.put_back(snapshot.changes)
            self.bear_failure(error)
            return
        self.retry_s = RETRY_S
        self.note_effort(time.thread_time() - started_s)
        self.set_alarm(decision.wake_at_s, now_s)
        self.dirty = follow_decision(staging, world, self.context.state_dir, decided, self.admits)

    def bear_failure(self, error: Exception) -> None:
        """Say that the policy has failed; jobs keep what they hold, newcomers wait, and it is asked again soon."""
        staging, now_s, policy = self.context.staging, self.now_s, self.context.options.policy
        sentence = sentences.tell_policy_failure(policy, error)
        logger.error(sentence, exc_info=error)
        staging.put_fact(FAILURES, int(staging.read_fact(FAILURES) or 0) + 1)
        staging.add_event(sentences.POLICY_FAILED, sentence, policy=policy)
        for view in self.context.world.jobs.values():
            if view.status is Status.PENDING and view.job.purpose is Purpose.TRAIN:
                staging.stage(keep_waiting(staging.jobs[view.job.id], sentence, now_s))
        self.wake_at_s, self.retry_at_s = inf, now_s + self.retry_s
        self.retry_s = min(2 * self.retry_s, MOST_RETRY_S)

    def set_alarm(self, wake_at_s: float, now_s: float) -> None:
        """Wake when the policy asked for it, and a little before: after the last moment to promise a job it is late."""
        early_s = wake_at_s - LEAD_S
        self.wake_at_s = early_s if early_s > now_s else wake_at_s

    def note_effort(self, cpu_s: float) -> None:
        """Load the compiled planner once decisions are slow; until then it would only take memory."""
        if cpu_s <= SLOW_DECISION_S:
            return
        self.slow_decisions += 1
        if self.slow_decisions == SLOW_DECISIONS:
            from springtide.policies.planning import columns, filling  # with numpy: not before they are needed

            start_compiling(filling, columns.make_samples())
            logger.info("decisions take more than %g ms: loading the compiled planner", 1000 * SLOW_DECISION_S)

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

    def flush(self) -> None:
        """Commit what was staged, then act on it; the secrets of a job that ended, in whatever way, go."""
        staging = self.context.staging
        ended = [record.id for record in staging.batch.jobs.values() if record.state in ENDED]
        self.unsent += staging.commit()
        for job_id in ended:
            self.context.state_dir.secrets_file(job_id).unlink(missing_ok=True)
        try:
            self.send()
            if self.cursor > self._acknowledged:
                self.executor.acknowledge(self.cursor)
                self._acknowledged = self.cursor
        except (OSError, SpringtideError) as error:
            self.lose_executor(error)

    def send(self) -> None:
        """Send the instructions that are not known to have arrived, in order."""
        if not self.unsent:
            return
        try:
            self.executor.apply(self.unsent)
        except (SpringtideError, ValueError):
            self.executor.running()  # raises if it is the executor that is gone, not an instruction that is refused
            self.send_singly()
            return
        # forgotten with the next commit; sent twice does no harm
        self.context.staging.batch.sent += [(one.job, one.generation) for one in self.unsent]
        self.unsent = []

    def send_singly(self) -> None:
        """Send instructions one by one, so that one that is refused keeps no other back; give up on it in the end."""
        instructions, self.unsent = self.unsent, []
        for one in instructions:
            try:
                self.executor.apply([one])
            except (SpringtideError, ValueError) as error:
                self.refusals[one.key] = self.refusals.get(one.key, 0) + 1
                if self.refusals[one.key] < MOST_REFUSALS:
                    self.unsent.append(one)
                    continue
                del self.refusals[one.key]
                transitions.give_up(self.context.staging, self.context.world, one, str(error))
                self.dirty = True
            self.context.staging.batch.sent.append((one.job, one.generation))


def keep_waiting(record: JobRecord, sentence: str, now_s: float) -> Effects:
    """What follows for a newcomer when the policy has failed: it waits, still without an answer; told once."""
    waiting = replace(record, state=JobState.WAITLISTED, reason=sentences.POLICY_FAILED, sentence=sentence)
    waiting = replace(waiting, answered_s=None)  # so that the next server asks, too
    event = EventRecord(now_s, "waitlisted", sentence, record.id, {"reason": sentences.POLICY_FAILED})
    return Effects(waiting, (event,) if record.reason != sentences.POLICY_FAILED else ())


def restore_clock(store: Store, source: ClockSource) -> Clock:
    """The clock of the last server, continued; never before what was stored last."""
    stored = store.fact("anchor")
    not_before_s = max((event.at_s for event in store.last_events(1)), default=0.0)
    return Clock(source, None if stored is None else Anchor(**stored), not_before_s)
