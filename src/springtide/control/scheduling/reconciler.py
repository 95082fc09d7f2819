"""The loop that keeps promises: hear the executor, ask the policy, write down, act. The live sibling of the simulator.

One thread owns the book and the world. Others hand it functions through `call` and wait; all that is handed in at one
time is answered by one decision. Every step commits before it acts, so a kill at any moment loses nothing: instructions
that were not sent are sent again, and the executor ignores those it has seen.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from math import inf
from typing import Any, TypeVar

from springtide.control.clock import Anchor, Clock, ClockSource
from springtide.control.scheduling import drains, effects, node_losses, offers, probes, quotas, submissions, timers
from springtide.control.scheduling.context import Context, ServerOptions
from springtide.control.scheduling.events import EventHandler
from springtide.control.scheduling.inventory import Inventory
from springtide.control.scheduling.live_world import LiveWorld, rebuild_view
from springtide.control.storage.records import OrderRecord, State
from springtide.control.storage.staging import Staging
from springtide.control.storage.state_dir import StateDir
from springtide.control.storage.store import Store
from springtide.core.decisions import Decision, Snapshot
from springtide.core.jobs import Job, JobId
from springtide.errors import SpringtideError
from springtide.executors.protocol import Event, Executor, Failed, NodeLost, Probed, Running
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
WATCH_S = 0.5  # between looks at deadlines, offers and budgets
LEAD_S = 0.1  # before an instant that the policy asked for, it is asked too
SLOW_DECISION_S = 0.02  # of CPU: with so much to plan, compiled kernels are worth their memory
SLOW_DECISIONS = 5


class Reconciler:
    """Keeps the world as the store says, and the store true to the world."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        site: Inventory,
        home: StateDir,
        source: ClockSource,
        options: ServerOptions,
    ) -> None:
        self.store = store
        self.executor = executor
        clock = restore_clock(store, source)
        site = drains.restore_inventory(site, store.fact(drains.FACT))
        self.platform = Context(Staging(store, clock), LiveWorld(site.cluster), site, home, clock, options)
        self.ear = EventHandler(self.platform)
        self.decide: Callable[[float, Snapshot], Decision] = partial(decide, find_policy(options.policy))
        self.cursor = int(store.fact("cursor") or 0)
        self.plans: set[str] = set(store.fact("plans") or ())  # jobs that are only to be measured
        self.wake_at_s = inf
        self.dirty = True
        self.calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self.unsent: list[OrderRecord] = store.list_orders()
        self.refusals: dict[str, int] = {}  # by the key of an order
        self.suspects: set[str] = set()
        self.last_decided_s = -inf
        self.slow_decisions = 0
        self._next_audit_s = self._next_watch_s = -inf
        self._stopping = threading.Event()
        self._unreachable = False
        self.recover()

    def recover(self) -> None:
        """Rebuild the world from the records, as it stood; then let the executor say what became of it."""
        platform, now_s = self.platform, self.platform.clock.now_s()
        platform.world.remember(self.store.fact("memory") or {})
        for record in list(platform.book.jobs.values()):
            devices, mix = platform.site.find_devices(record.devices), platform.site.count_types(record.devices)
            if record.state is State.PROBING and devices:
                job = submissions.fix_share(submissions.make_probe_job(record, platform.site, [*mix]), mix)
                platform.world.restore(rebuild_view(record, job, devices, mix, now_s))
            elif record.state is State.OFFERED:
                offers.restore(platform, record)
            elif record.state is State.PROBING or record.answered_s is None or probes.is_waiting(record):
                effects.arrive(platform, record.id)
            elif record.state in (State.ADMITTED, State.RUNNING, State.WAITLISTED):
                platform.world.restore(rebuild_view(record, platform.build_job(record), devices, mix, now_s))
        platform.book.put_fact("anchor", asdict(platform.clock.anchor))
        self.flush()

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Have a function run by the reconciler's thread; done when its effects are decided and stored."""
        future: Future[T] = Future()
        self.calls.put((function, future))
        return future

    def run(self) -> None:
        """Step until told to stop. What goes wrong in one step is logged, and the next one tries again."""
        while not self._stopping.is_set():
            try:
                self.step(self.rest_s())
            except Exception:
                logger.exception("a step of the reconciler failed; the next one tries again")
                time.sleep(POLL_S)

    def stop(self) -> None:
        """End the loop after the present step."""
        self._stopping.set()
        self.calls.put(None)

    def rest_s(self) -> float:
        """How long nothing needs to be looked at; never beyond the instant that the policy has asked for."""
        busy = any(record.devices for record in self.platform.book.jobs.values()) or self.unsent
        asleep_s = max(0.0, self.wake_at_s - self.platform.clock.now_s())
        return min(POLL_S if busy else IDLE_POLL_S, asleep_s)

    def step(self, wait_s: float = 0.0) -> None:
        """Take what was handed in and what happened, decide once if that calls for it, commit, act, answer."""
        answered = self.take_calls(wait_s)
        try:
            self.look_at_executor()
            self.look_at_time()
            for _ in range(MOST_DECISIONS):
                if self.dirty or self.platform.clock.now_s() >= self.wake_at_s:
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
            item = self.calls.get(timeout=wait_s) if wait_s > 0 else self.calls.get_nowait()
            while True:
                if item is not None:
                    answered.append((item[1], self.run_call(item[0])))
                item = self.calls.get_nowait()
        except queue.Empty:
            return answered

    def run_call(self, function: Callable[[], Any]) -> Any:
        """The value of a function, or the error it raised."""
        try:
            return function()
        except SpringtideError as error:
            return error
        except Exception as error:
            logger.exception("a request failed inside the reconciler")
            return error

    def look_at_executor(self) -> None:
        """Hear what happened, and now and then compare what runs with what should."""
        now_s = self.platform.clock.now_s()
        audit = now_s >= self._next_audit_s
        try:
            self.send()
            running = self.executor.running() if audit else ()
            events = self.executor.events(self.cursor)
        except (OSError, SpringtideError) as error:
            self.lose_executor(error)
            return
        if self._unreachable:
            self._unreachable = False
            self.platform.book.note("executor_back", "the executor answers again")
        for event in events:
            self.dirty |= self.hear(event)
            self.cursor = max(self.cursor, event.seq)
        if events:
            self.platform.book.put_fact("cursor", self.cursor)
        if audit:
            self._next_audit_s = now_s + AUDIT_S
            self.audit({one.job: one for one in running})

    def hear(self, event: Event) -> bool:
        """Work in one event; returns whether a decision is called for."""
        if isinstance(event, NodeLost):
            return node_losses.hear(self.platform, event, self.decide)
        changed = self.ear.hear(event)
        if changed and isinstance(event, Probed | Failed) and JobId(event.job) in self.platform.world.jobs:
            self.judge_measured(event.job)
        drains.hear(self.platform, event)
        return changed

    def judge_measured(self, job_id: str) -> None:
        """A job that has just been measured: one that was only to be planned ends, others must keep to their quota."""
        if job_id not in self.plans:
            quotas.enforce(self.platform, job_id)
            return
        sentence = "measured for a plan; submit it to have it run"
        effects.end_job(self.platform, job_id, State.CANCELLED, "measured", sentence, self.platform.clock.now_s())
        self.remember_plans(self.plans - {job_id})

    def remember_plans(self, jobs: set[str]) -> None:
        """Which jobs are only to be measured, also for the next server; those that have ended are forgotten."""
        self.plans = {job_id for job_id in jobs if job_id in self.platform.book.jobs}
        self.platform.book.put_fact("plans", sorted(self.plans))

    def lose_executor(self, error: Exception) -> None:
        """Note, once, that the executor does not answer; jobs go on without us meanwhile."""
        if not self._unreachable:
            self._unreachable = True
            self.platform.book.note("executor_lost", f"the executor does not answer: {error}")
            logger.warning("the executor does not answer: %s", error)

    def audit(self, running: Mapping[str, Running]) -> None:
        """Start what should run and does not (seen twice), cancel what runs and should not."""
        missing = {
            record.id
            for record in self.platform.book.jobs.values()
            if record.devices and record.id not in running and not any(one.job == record.id for one in self.unsent)
        }
        for job_id in sorted(missing & self.suspects):
            self.platform.book.note("lost", "the executor no longer knows it; it starts again", job_id)
            effects.start_again(self.platform, job_id)
        self.suspects = missing - self.suspects
        for name, one in running.items():
            effects.end_stray(self.platform, name, one)

    def look_at_time(self) -> None:
        """Notice deadlines, offers and budgets that are up."""
        now_s = self.platform.clock.now_s()
        if now_s >= self._next_watch_s:
            self._next_watch_s = now_s + WATCH_S
            self.dirty |= timers.watch(self.platform)
            drains.watch(self.platform)

    def make_decision(self) -> None:
        """Ask the policy, and stage what it says; offers are looked for where it declines."""
        now_s = max(self.platform.clock.now_s(), self.last_decided_s + 1e-6)
        self.last_decided_s = now_s
        snapshot = self.platform.world.snapshot()
        started_s = time.thread_time()
        try:
            decision = self.decide(now_s, snapshot)
        except Exception:
            self.platform.world.put_back(snapshot.changes)
            raise
        self.note_effort(time.thread_time() - started_s)
        self.dirty = False
        self.set_alarm(decision.wake_at_s, now_s)
        declined = effects.stage_decision(self.platform, decision, now_s)
        self.dirty |= offers.settle(self.platform, decision)
        for job_id in probes.settle(self.platform):
            self.judge_measured(job_id)
            self.dirty = True
        for view, answer in declined:
            self.dirty |= offers.propose(self.platform, view, answer, self.admits)
        drains.follow_up(self.platform)
        timers.update_predictions(self.platform, decision)

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
        """Whether the policy would admit a job now, in a copy of the world."""
        decision = decide_with(self.platform, self.decide, job)
        return timers.is_admitted(decision, job)

    def flush(self) -> None:
        """Commit what was staged, then act on it; the secrets of a job that ended, in whatever way, go."""
        ended = [record.id for record in self.platform.book.batch.jobs.values() if not record.active]
        self.unsent += self.platform.book.commit()
        for job_id in ended:
            self.platform.home.secrets_file(job_id).unlink(missing_ok=True)
        try:
            self.send()
            self.executor.acknowledge(self.cursor)
        except (OSError, SpringtideError) as error:
            self.lose_executor(error)

    def send(self) -> None:
        """Send the instructions that are not known to have arrived, in order."""
        if not self.unsent:
            return
        try:
            self.executor.apply([load_instruction(order.body) for order in self.unsent])
        except (SpringtideError, ValueError):
            self.executor.running()  # raises if it is the executor that is gone, not an instruction that is refused
            self.send_singly()
            return
        self.platform.book.batch.sent += self.unsent  # forgotten with the next commit; sent twice does no harm
        self.unsent = []

    def send_singly(self) -> None:
        """Send instructions one by one, so that one that is refused keeps no other back; give up on it in the end."""
        orders, self.unsent = self.unsent, []
        for order in orders:
            try:
                self.executor.apply([load_instruction(order.body)])
            except (SpringtideError, ValueError) as error:
                self.refusals[order.key] = self.refusals.get(order.key, 0) + 1
                if self.refusals[order.key] < MOST_REFUSALS:
                    self.unsent.append(order)
                    continue
                del self.refusals[order.key]
                effects.give_up(self.platform, order, str(error))
                self.dirty = True
            self.platform.book.batch.sent.append(order)


def restore_clock(store: Store, source: ClockSource) -> Clock:
    """The clock of the last server, continued; never before what was stored last."""
    stored = store.fact("anchor")
    events: Sequence[Any] = store.last_events(1)
    not_before_s = events[0].at_s if events else 0.0
    return Clock(source, None if stored is None else Anchor(**stored), not_before_s)


def decide_with(platform: Context, policy: Callable[[float, Snapshot], Decision], job: Job) -> Decision:
    """What the policy would decide if this job came now, in a copy of the world."""
    twin = platform.world.copy()
    now_s = platform.clock.now_s()
    twin.arrive(job, now_s)
    return policy(now_s, twin.snapshot())
