"""The elastic run: logical workers of this process walked in turn, one reduction and one agreement per global step.

Ties the parts together: who is at work with what (`turns`), data (`loaders`), decisions (`agreement`), changes of
processes (`membership`, `rescale`), disk (`checkpointing`).
"""

import copy
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

from springtide.errors import JobError
from springtide.training.determinism import cuda, levels
from springtide.training.determinism.operators import OperatorScan, check_operators
from springtide.training.group import membership, rescale, words
from springtide.training.group.agreement import Action, Agreement
from springtide.training.group.default_group import find_store, refuse_groups
from springtide.training.group.groups import Group, broadcast_tensor, share_trees
from springtide.training.group.paces import PaceWatch
from springtide.training.group.peers import Peers
from springtide.training.group.rank_reads import check_reads
from springtide.training.group.rosters import check_counts
from springtide.training.group.script_calls import ScriptCalls
from springtide.training.living_objects import bring_back
from springtide.training.parts import Parts, find_strays, refuse_foreign
from springtide.training.positions import Goal
from springtide.training.run import PrepareOptions, Run
from springtide.training.settings import Settings, find_roster
from springtide.training.state import chaining, checkpointing, left_between_steps, run_state
from springtide.training.state.common_parts import check_parts_kept, describe_parts
from springtide.training.state.digests import DigestTrace, is_sharded, name_tensors
from springtide.training.state.divergence import DivergenceGuard
from springtide.training.state.memory_copies import MemoryCopies
from springtide.training.state.output_copy import open_copy
from springtide.training.state.script.loop_variables import own_caller, tell_lost
from springtide.training.state.script.script_objects import ScriptObjects
from springtide.training.state.turn_guard import TurnGuard
from springtide.training.state.turn_memory import TurnMemory
from springtide.training.tracking.tracking import MetricTracking
from springtide.training.workers import sampling
from springtide.training.workers.buffers import find_device
from springtide.training.workers.feeds import Feed
from springtide.training.workers.loader_iterators import IteratorWatch
from springtide.training.workers.loaders import Loader, StepSource
from springtide.training.workers.shards import Shard
from springtide.training.workers.step_metrics import Metric, StepMetrics, gather_values
from springtide.training.workers.steps import Step
from springtide.training.workers.turns import Turns

if TYPE_CHECKING:
    from springtide.training.sharding.model_sharding import ModelSharding

PROGRESS_S = 0.05
TERMINATED = 143  # the exit code of a process ended by SIGTERM, as shells report it


class ElasticRun(Run):
    """A run whose logical workers may live on any number of processes."""

    def __init__(self, logical_workers: int, seed: int, settings: Settings, environ: Mapping[str, str]) -> None:
        super().__init__(logical_workers, seed, settings)
        own_caller()
        self.roster, self.name = find_roster(settings, logical_workers, environ)
        check_counts(logical_workers, len(self.roster.names))
        if self.roster.logical_workers != logical_workers:
            raise JobError(
                f"roster {self.roster} places {self.roster.logical_workers} of {logical_workers} logical workers"
            )
        self.rank = self.roster.rank_of(self.name)
        self.generation = settings.generation
        self.store = find_store(settings, environ)
        self.agreement = Agreement(settings, self.channel, self.store)
        self.is_over = False
        #: The step that is under way.
        self.step: Step | None = None
        self.peers: Peers | None = None
        if self.store is not None:
            asked = (lambda: self.is_over, self.find_awaited, lambda: self.generation)
            self.peers = Peers(self.store, self.name, *asked)
        self.divergence, self.paces, self.calls = DivergenceGuard(), PaceWatch(), ScriptCalls(self)
        #: Whether all processes have compared their states since the last walk.
        self.compared = False
        self.iterators = IteratorWatch()
        self.turn_guard, self.memory = TurnGuard(self.channel.warn), TurnMemory(self.channel.warn)
        self.objects = ScriptObjects()
        refuse_groups(self.channel.warn if self.is_main else None)
        self.checkpoints = checkpointing.open_checkpoints(settings)
        self.copies = MemoryCopies(settings)
        self.saved_step = -1
        self.reported_s, self.reported_generation = time.monotonic(), -1
        self.loop_s = 0.0
        #: Phrases that name script variables whose saved value differs from the present one.
        self.lost: list[str] = []
        self.scan: OperatorScan | None = None
        self.scanned = False
        self.group: Group | None = None
        #: Whether a ring of the backend's own adds in the order of our sums, so that it may be used.
        self.rings = False
        self.metrics = StepMetrics(self.channel.warn)
        self.postponed = (Action.NOTHING, 0)
        #: Whether what was agreed after the last step is still to be done, and whether something is being done now.
        self.is_postponed = self.is_acting = False
        #: Why this process would stop the run, as long as the first one has not said whether it is.
        self.wish: str | None = None
        #: A state to resume from, until the loop is entered.
        self.saved: dict[str, Any] | None = None
        self.trace = DigestTrace(settings.trace_dir, self.name) if settings.trace_dir else None
        self.chain = chaining.open_chain(settings)
        self.tracking = MetricTracking(settings, self.output_dir, self.channel.warn)
        self.output_copy = open_copy(settings, self.busy)
        #: How the model is sharded, if it is.
        self.sharding: ModelSharding | None = None
        self.watched, self.is_told_alone = register_optimizer_step_pre_hook(self.tell_alone), False

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def local(self) -> list[int]:
        """The logical workers of this process."""
        return list(self.roster.workers_of(self.rank))

    @property
    def steps_per_epoch(self) -> int:
        return self.loader.sampling.steps_per_epoch

    # From prepare to the first step.

    def adopt_parts(self, given: Parts, feed: Feed, options: PrepareOptions) -> tuple[list[Any], Any]:
        check_reads(feed.dataset, self.channel.warn if self.is_main else None)
        length = len(sampling.adopt(feed.dataset, self.seed))
        self.loader = Loader(self, given.data, feed, self.make_sampling(feed, length))
        held, self.device = self.device, find_device(self.models[0])
        if warning := cuda.tell_idle(held, self.device):
            self.channel.warn(warning)
        cuda.make_current(self.device)
        self.backend = cuda.choose_backend(self.device.type)
        self.facts = checkpointing.find_facts(self)
        self.adopt_sharding()
        self.part_facts = describe_parts(self)
        self.module_settings = left_between_steps.read_settings(self.models)
        self.turns = Turns(
            self.models, options.find_unused_parameters, options.broadcast_buffers, self.sharding, words.VERDICT_SIZE
        )
        self.turns.contexts.seed(self.local, self.seed)
        received = rescale.receive_state(self) if self.settings.joining else None
        if received is None:
            self.rings = membership.choose_rings(self)
        membership.join(self, self.roster, self.generation)
        if received is not None:
            self.adopt_early(received)
        else:
            self.start()
        self.watched.remove()
        self.watched = register_optimizer_step_pre_hook(self.check_optimizer)
        return self.models, self.loader

    def shard_module(self, module: torch.nn.Module, options: dict[str, Any]) -> torch.nn.Module:
        if self.sharding is None:
            from springtide.training.sharding.model_sharding import ModelSharding  # torch's part of it takes a while

            self.sharding = ModelSharding()
        return self.sharding.add(module, options)

    def adopt_sharding(self) -> None:
        """Let what is sharded know the run's parts, and refuse what a sharded run has not."""
        refuse_foreign(self.models, [] if self.sharding is None else self.sharding.modules)
        if self.sharding is None:
            return
        self.sharding.adopt(self.models, self.optimizers)
        if self.scalers:
            raise JobError("a GradScaler was given with a sharded model; use bfloat16, which needs none")

    def clip_grad_norm_(
        self, parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0
    ) -> torch.Tensor:
        if self.sharding is None:
            return super().clip_grad_norm_(parameters, max_norm, norm_type)
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        return self.sharding.clip(given, max_norm, norm_type)

    def adopt_early(self, state: dict[str, Any]) -> None:
        """Take over a saved state as far as the parts are known, and keep it until the loop is entered."""
        self.saved = state
        run_state.adopt(self, state, is_final=False)

    def keep(self, **objects: Any) -> None:
        super().keep(**objects)
        for name, one in objects.items():
            if self.saved is not None and name in self.saved["kept"]:
                one.load_state_dict(copy.deepcopy(self.saved["kept"][name]))

    def start(self) -> None:
        """Begin anew, or from the newest whole checkpoint."""
        if self.checkpoints is not None:
            checkpointing.resume(self)
        if self.saved is None and self.group is not None:
            for tensor in run_state.name_weights(self.models).values():  # as DDP does when it is built
                if not is_sharded(tensor):  # those were, when they were cut
                    broadcast_tensor(self.group, tensor)
        chaining.begin(self)

    def begin_epochs(self, goal: Goal) -> Iterator[int]:
        epochs = super().begin_epochs(goal)
        self.objects.begin(self)  # what the first epoch's own lines change is not known to those who enter a later one
        return epochs

    def enter_loop(self) -> None:
        """Start walking the loader: all parts are known by now, and what a resume brings back is put in its place."""
        is_first = not self.entered
        self.check_entry()
        if is_first:
            strays = find_strays(self.optimizers, self.schedulers, self.scalers)
            self.schedulers += strays.schedulers
            self.scalers += strays.scalers
            self.turns.find_compiled()
        check_parts_kept(self)
        levels.keep(self.switches, self.level, self.channel.warn)
        if self.saved is not None:
            run_state.adopt(self, self.saved, is_final=True)
            lost = self.objects.adopt(self, self.saved["objects"]) if "objects" in self.saved else []
            tell_lost(self, self.saved.get("variables", {}), lost)
            self.saved = None
        if is_first:
            self.objects.begin(self)
            rescale.tell_entry(self)
        # Before anything is saved or handed over here: who goes on from that must draw the same.
        self.loader.draw_plan(self.position.epoch)
        (action, generation), self.postponed = self.postponed, (Action.NOTHING, 0)
        if action:
            self.act(action, generation)
        self.is_postponed = False
        if self.position.step_in_epoch == 0 and self.loader.feed.draws_seed:
            self.draw_seeds()
        self.turn_guard.begin_epoch(self)
        self.loop_began_s = time.monotonic()
        self.channel.send("inside")

    def draw_seeds(self) -> None:
        """At an epoch's very start each worker draws what iter(DataLoader) would draw."""
        for worker in self.local:
            self.turns.contexts.enter(worker)
            torch.empty((), dtype=torch.int64).random_()
        self.turns.contexts.exit()

    # A global step.

    def wants_step(self, steps_per_epoch: int) -> bool:
        """Whether another global step of this epoch is to be taken."""
        open_ = self.position.step_in_epoch < steps_per_epoch and self.stop_reason is None
        return open_ and self.goal.allows_step(self.position)

    def begin_step(self, source: StepSource) -> Step:
        """Start a global step."""
        self.turns.guard(in_step=True)
        self.iterators.look(self.loader.batches)
        self.step = Step(source, self.position.step_in_epoch, self.position.step)
        return self.step

    def begin_walk(self, step: Step) -> None:
        """Start the turns of a step."""
        if step is not self.step:
            raise JobError(f"step {step.number} was walked after its time; walk a step before the loader goes on")
        if self.scan is None and self.level == "D2":
            self.scan = OperatorScan()
            self.scan.__enter__()  # type: ignore[no-untyped-call]
        self.turn_guard.begin(self)
        self.turns.begin_walk()
        self.paces.begin()

    def begin_turn(self, worker: int) -> None:
        """Switch to a worker's context for its part of the step."""
        self.turns.begin_turn(worker)
        self.memory.begin_turn(self.models)
        self.turn_guard.trial.begin_turn()
        if self.trace is not None:
            self.trace.worker = worker

    def end_turn(self, worker: int) -> None:
        """Keep what the worker's turn has made."""
        self.turns.end_turn(worker)
        self.turn_guard.trial.end_turn()
        self.memory.end_turn(self.models, self.turns.contexts.workers[worker].state)

    def end_walk(self) -> None:
        """All turns have ended: reduce, and hear beside it what the first process says about the coming boundary."""
        self.paces.end(len(self.turns.local), self.turns.waited_s)
        words.say(self)
        self.turns.end_walk()
        self.verdict = words.hear(self)
        self.turn_guard.end(self)
        self.compared = False

    def find_awaited(self) -> int:
        """How far the others must come for what this process does now, in half steps; -1 if it waits for nobody."""
        step = self.step
        if self.is_acting:  # what was postponed lies behind the end-of-epoch lines
            return 2 * self.position.step + self.is_postponed
        return 2 * step.number + 1 if step is not None and self.turns.walking else -1

    def tell_alone(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Before any optimizer steps while nothing was prepared: say once that this training is not the run's."""
        if self.is_main and not self.is_told_alone:
            self.is_told_alone = True
            self.channel.warn(
                f"{type(optimizer).__name__}.step() was called before run.prepare: until then each process "
                "trains separately, and a rescale or a kill loses that training. Give model, optimizer and loader to "
                "run.prepare; under a framework take springtide's ElasticTrainer, Trainer(strategy='springtide') or "
                "ElasticAccelerator"
            )

    def check_optimizer(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Before any optimizer steps: refuse one that acts within turns, or of which a resume would not know."""
        if self.step is not None:
            self.step.check_whole()
        self.turns.check_optimizer(self.optimizers, optimizer)

    def end_step(self, is_left: bool = False) -> None:
        """The boundary between two global steps: record, and do what was agreed; later, if the loop was left here."""
        step = self.step
        assert step is not None
        step.check_whole()
        if not step.walks:
            self.loader.skip_batches()
            words.say(self)
            self.turns.share_word()
            self.verdict = words.hear(self)
        self.step, verdict = None, self.verdict
        self.turns.guard(in_step=False)
        if self.scan is not None and not self.scanned:
            self.end_scan(self.scan)
        self.position = self.position.after_step()
        # The order matters: metrics are a collective of the roster that took the step, so acting on what was agreed,
        # which may change the roster or end this process, comes last.
        self.is_acting = verdict.form[0] > 0
        means = self.metrics.average(verdict.form, self.logical_workers, self.group, self.device)
        self.is_acting = False
        if means:
            self.emit(means)
        if self.trace is not None:
            self.trace.write(self.position.step, name_tensors(self.models, self.optimizers), str(self.roster))
        chaining.note(self)
        if self.is_main and self.channel.is_open:
            self.report(at_once=verdict.action.is_told or not self.wants_step(self.steps_per_epoch))
        self.is_postponed = bool(verdict.action) and (is_left or not self.wants_step(self.steps_per_epoch))
        if self.is_postponed:
            self.postpone(verdict.action, verdict.generation)
        elif verdict.action:
            self.act(verdict.action, verdict.generation)

    def settle(self) -> None:
        if self.step is not None and not self.step.walks:
            self.step.check_whole()
            self.step = None
            self.stop_reason, self.wish = self.stop_reason or self.wish, None  # nobody will say a word about this step
            self.turns.guard(in_step=False)
        elif self.step is not None:
            self.end_step(is_left=True)

    def postpone(self, action: Action, generation: int) -> None:
        """Keep what was agreed after an epoch's last step, also one by `break`, for the start of the next one.

        A process that joined or resumed here would run the script's end-of-epoch lines without having taken a step. A
        copy in memory is left for a later step: those lines would be behind it, and their records behind what was told.
        """
        self.postponed = action & ~(Action.STOP | Action.COPY), generation

    def report(self, at_once: bool) -> None:
        """Send progress, at most every PROGRESS_S unless something happens: small models take 100 steps a second."""
        now_s = time.monotonic()
        at_once = at_once or self.reported_generation != self.generation
        if now_s - self.reported_s < PROGRESS_S and not at_once:
            return
        self.reported_generation = self.generation
        self.reported_s = now_s
        self.channel.send("progressed", step=self.position.step, epoch=self.position.epoch)

    def end_scan(self, scan: OperatorScan) -> None:
        """After a process's first step at level D2: refuse operators that were not tested across device types."""
        self.scanned = True
        scan.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        check_operators(scan.seen)

    def act(self, action: Action, generation: int) -> None:
        """Do what was agreed."""
        self.is_acting = True
        if self.group is not None and Action.COMPARE in action:
            self.divergence.compare(self)
            self.paces.compare(self)
            self.compared = True
        checkpointing.act(self, action)
        if Action.TERMINATE in action:
            self.is_over = True
            self.channel.send("terminated", step=self.position.step)
            raise SystemExit(TERMINATED)
        if Action.RESCALE in action:
            rescale.change_roster(self, generation)
        self.is_acting = False

    def leave_loop(self) -> None:
        """Stop walking the loader."""
        self.loop_s += time.monotonic() - self.loop_began_s
        self.channel.send("outside")

    # What the script asks for.

    def stop(self, reason: str = "stopped") -> None:
        # Until rank 0's word for this step is sent, its call decides for all, and a call on any other process is only a
        # request; after that each process decides for itself.
        worker = self.turns.worker
        if worker is None and (self.step is None or self.step.walks):
            super().stop(reason)
        elif not worker:
            self.wish = reason

    def add_workers(self, values: list[torch.Tensor]) -> torch.Tensor:
        if len(values) != len(self.local):
            raise JobError(
                f"run.sum or run.mean was given {len(values)} values on a process with {len(self.local)} logical "
                "workers; give one per turn of `for ... in step:`"
            )
        membership.refuse_early(self, "run.sum or run.mean")
        with self.calls.make() as group:
            return gather_values(values, self.local, self.logical_workers, group)

    def shard(self, loader: DataLoader[Any]) -> Shard:
        if self.sharding is not None:
            raise JobError(
                "run.shard gives each process other batches, but a sharded model runs on all processes at once; walk "
                "the whole loader on every process"
            )
        return Shard(loader, partial(membership.find_seat, self), self.seed, self.exchange)

    def exchange(self, results: list[Any]) -> list[list[Any]]:
        """Everyone's results, by rank; only its own for a process that is not in the loop yet and joins."""
        if membership.is_joining(self):
            return [results]
        with self.calls.make() as group:
            return [results] if group is None else share_trees(group, results, self.device)

    def no_sync(self) -> AbstractContextManager[None]:
        return self.turns.hold()

    def log(self, **metrics: Metric) -> None:
        if self.turns.worker is None:
            self.emit({name: float(value) for name, value in metrics.items()})
        else:
            self.metrics.add(self.turns.worker, metrics)

    def emit(self, metrics: dict[str, float], step: int | None = None, echo: bool = True) -> None:
        """Log metrics once, to the supervisor and trackers; to standard output where there is no supervisor.

        A framework counts a step before its boundary, and prints by itself.
        """
        if not self.is_main:
            return
        step = self.position.step if step is None else step
        self.channel.send("logged", step=step, metrics=metrics)
        self.tracking.log(step, metrics)
        if echo and not self.channel.is_open:
            print(f"step {self.position.step}  " + "  ".join(f"{k} {v:.6g}" for k, v in metrics.items()), flush=True)

    def checkpoint(self) -> None:
        if self.is_main and self.turns.worker in (None, 0):
            self.agreement.wants_checkpoint = True

    def report_epoch(self, epoch: int, seconds: float) -> None:
        inside_s, self.loop_s = self.loop_s, 0.0
        if self.is_main:
            self.channel.send("epoch", epoch=epoch, inside_s=inside_s, outside_s=seconds - inside_s)

    def forget(self) -> None:
        self.watched.remove()
        bring_back()

    def end_together(self, group: Group) -> None:
        """Compare once more, when all processes have ended their run."""
        if self.peers is not None:
            timeout_s = self.settings.collective_timeout_s
            reached = 2 * self.position.step - self.is_postponed
            self.peers.end_together(reached, group.name, group.size, timeout_s)
        self.divergence.compare(self)

    def finish(self) -> None:
        if self.group is not None and self.entered:
            self.end_together(self.group)
        self.forget()
        self.is_over = True
        if self.checkpoints is not None:
            checkpointing.save_result(self)
        self.agreement.restore_sigterm()
        with self.busy("sending to trackers"):
            self.tracking.finish()
        if self.is_main and self.output_copy is not None:
            self.output_copy.send()
        self.channel.send("finished" if self.is_main else "done", step=self.position.step, reason=self.stop_reason)
