"""The elastic run: logical workers of this process walked in turn, one reduction and one agreement per global step.

Ties the parts together: contexts (`contexts`), gradients and reduction (`global_step`), data (`loaders`),
decisions (`agreement`), changes of processes (`rescale`), disk (`checkpointing`).
"""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from springtide.errors import JobError
from springtide.training.determinism import cuda
from springtide.training.determinism.operators import OperatorScan, check_operators
from springtide.training.group import rescale
from springtide.training.group.agreement import Action, Agreement, read_header, write_header
from springtide.training.group.control_channel import Channel
from springtide.training.group.groups import Group, connect_store, open_group
from springtide.training.group.rosters import Roster, check_counts
from springtide.training.reduction import gloo_order
from springtide.training.run import Parts, PrepareOptions, Run
from springtide.training.settings import Settings, find_roster
from springtide.training.state import chaining, checkpointing, run_state
from springtide.training.state.digests import DigestTrace, name_tensors
from springtide.training.workers import once_per_step, sampling
from springtide.training.workers.contexts import Buffers, Contexts, find_device
from springtide.training.workers.global_step import Turns
from springtide.training.workers.loaders import Loader
from springtide.training.workers.step_metrics import Metric, StepMetrics

PROGRESS_S = 0.05
TERMINATED = 143  # the exit code of a process ended by SIGTERM, as shells report it


class ElasticRun(Run):
    """A run whose logical workers may live on any number of processes."""

    def __init__(self, logical_workers: int, seed: int, settings: Settings, environ: Mapping[str, str]) -> None:
        super().__init__(logical_workers, seed, settings)
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
        self.checkpoints = checkpointing.open_checkpoints(settings)
        self.saved_step = -1
        self.reported_s, self.reported_generation = time.monotonic(), -1
        self.loop_s = 0.0
        self.scan: OperatorScan | None = None
        self.scanned = False
        self.group: Group | None = None
        self.metrics = StepMetrics()
        self.postponed = (Action.NOTHING, 0)
        self.trace = DigestTrace(settings.trace_dir, self.name) if settings.trace_dir else None
        self.chain = chaining.open_chain(settings)

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

    def adopt_parts(self, given: Parts, options: PrepareOptions) -> tuple[Any, Any]:
        self.schedulers, self.scalers = given.schedulers, given.scalers
        dataset = sampling.adopt(given.dataset, self.seed)
        self.loader = Loader(self, dataset, self.make_sampling(len(dataset), options), options)
        self.attach(options.find_unused_parameters, options.broadcast_buffers)
        return self.model, self.loader

    def attach(self, find_unused: bool, broadcast_buffers: bool) -> None:
        """Give the workers their contexts and buffers, and let optimizers and schedulers wait for their moment."""
        self.device = find_device(self.model)
        self.backend = cuda.choose_backend(self.device.type)
        self.facts = checkpointing.find_facts(self)
        self.contexts = Contexts(Buffers(self.model), broadcast_buffers)
        self.contexts.seed(self.local, self.seed)
        self.turns = Turns(self.model, self.contexts, find_unused)
        once_per_step.gate(self.optimizers, self.schedulers, self.scalers, self.turns)
        received = rescale.receive_state(self) if self.settings.joining else None
        self.join_roster(self.roster, self.generation)
        if received is not None:
            run_state.adopt(self, received)
        else:
            self.start()

    def start(self) -> None:
        """Begin anew, or from the newest whole checkpoint."""
        if self.is_main and self.logical_workers > 1 and self.backend == "gloo":
            check_order(self.logical_workers, self.channel)
        if self.checkpoints is not None:
            checkpointing.resume(self)
        chaining.begin(self)

    def join_roster(self, roster: Roster, generation: int) -> None:
        """Become a process of this roster: open its group and plan the reduction over it."""
        self.roster, self.generation = roster, generation
        self.rank = roster.rank_of(self.name)
        self.group = self.open_group()
        self.turns.configure(roster, self.rank, self.group, self.backend)

    def open_group(self) -> Group | None:
        """This generation's process group; a process alone needs none."""
        size = len(self.roster.names)
        if size == 1:
            return None
        if self.store is None:
            raise JobError(f"roster {self.roster} has several processes but no store; set SPRINGTIDE_STORE")
        timeout_s = self.settings.collective_timeout_s
        return open_group(self.backend, self.store, self.rank, size, str(self.generation), timeout_s)

    def begin_epoch(self) -> None:
        """Start walking the loader: at an epoch's very start each worker draws what iter(DataLoader) would draw."""
        (action, generation), self.postponed = self.postponed, (Action.NOTHING, 0)
        if action:
            self.act(action, generation)
        if self.position.step_in_epoch == 0:
            for worker in self.local:
                self.contexts.enter(worker)
                torch.empty((), dtype=torch.int64).random_()
        self.loop_began_s = time.monotonic()
        self.channel.send("inside")

    def wants_step(self, steps_per_epoch: int) -> bool:
        """Whether another global step of this epoch is to be taken."""
        open_ = self.position.step_in_epoch < steps_per_epoch and self.stop_reason is None
        return open_ and self.goal.allows_step(self.position)

    def begin_turn(self, worker: int) -> None:
        """Switch to a worker's context for its part of the step."""
        if self.scan is None and self.level == "D2":
            self.scan = OperatorScan()
            self.scan.__enter__()  # type: ignore[no-untyped-call]
        self.contexts.enter(worker)
        self.contexts.load_buffers(worker)
        self.turns.begin(worker)
        if self.trace is not None:
            self.trace.worker = worker

    def end_turn(self, worker: int) -> None:
        """Make sure the worker's gradients are staged, and keep its buffers."""
        self.turns.end()
        self.contexts.keep_buffers(worker)

    def end_step(self) -> None:
        """The boundary between two global steps: agree with the other processes, record, and act."""
        if self.scan is not None and not self.scanned:
            self.end_scan(self.scan)
        self.position = self.position.after_step()
        # The order matters: layouts and agreement are collectives of the roster that took the step, so acting on what
        # was agreed, which may change the roster or end this process, comes last; the trace has the agreed buffers.
        self.turns.rebuild()
        action, generation, form = self.agree()
        means = self.metrics.average(form, self.logical_workers, self.group, self.device)
        if means:
            self.emit(means)
        if self.trace is not None:
            self.contexts.buffers.load()
            self.trace.write(self.position.step, name_tensors(self.model, self.optimizers), str(self.roster))
        chaining.note(self)
        if self.is_main and self.channel.is_open:
            self.report(at_once=bool(action) or not self.wants_step(self.steps_per_epoch))
        if action and self.wants_step(self.steps_per_epoch):
            self.act(action, generation)
        elif action:
            self.postpone(action, generation)

    def postpone(self, action: Action, generation: int) -> None:
        """Keep what was agreed after an epoch's last step for the start of the next one; a stop counts at once.

        A process that joined or resumed here would run the script's end-of-epoch lines without having taken a step.
        """
        if Action.STOP in action:
            self.act(Action.STOP, generation)
        self.postponed = action & ~Action.STOP, generation

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

    def agree(self) -> tuple[Action, int, tuple[int, int]]:
        """Rank 0's decision for this boundary, with its buffers; the same on every process."""
        buffers = self.contexts.buffers
        if self.is_main:
            buffers.agree()
            writing = checkpointing.is_writing(self)
            action = self.agreement.decide(self.roster, self.position.step, self.stop_reason is not None, writing)
            write_header(buffers.header, action, self.agreement.change, self.metrics.form)
        else:
            self.agreement.forward_termination()
        if self.group is not None:
            self.group.broadcast(buffers.agreed, 0).wait()
        return read_header(buffers.header)

    def act(self, action: Action, generation: int) -> None:
        """Do what was agreed; the contexts are at rest meanwhile."""
        self.contexts.exit()
        if self.checkpoints is not None and action & (Action.CHECKPOINT | Action.TERMINATE):
            checkpointing.save(self, wait=Action.TERMINATE in action)
        if Action.TERMINATE in action:
            self.channel.send("terminated", step=self.position.step)
            raise SystemExit(TERMINATED)
        if Action.STOP in action and self.stop_reason is None:
            self.stop_reason = "stopped by the supervisor"
        if Action.RESCALE in action:
            rescale.change_roster(self, generation)

    def leave_loop(self) -> None:
        """Stop walking the loader: the process's own context is active again."""
        self.turns.abandon()
        self.contexts.exit()
        self.loop_s += time.monotonic() - self.loop_began_s
        self.channel.send("outside")

    def log(self, **metrics: Metric) -> None:
        if self.turns.worker is None:
            self.emit({name: float(value) for name, value in metrics.items()})
        else:
            self.metrics.add(self.turns.worker, metrics)

    def emit(self, metrics: dict[str, float]) -> None:
        """Log metrics once: to the supervisor if there is one, else to standard output."""
        if not self.is_main:
            return
        self.channel.send("logged", step=self.position.step, metrics=metrics)
        if not self.channel.is_open:
            print(f"step {self.position.step}  " + "  ".join(f"{k} {v:.6g}" for k, v in metrics.items()), flush=True)

    def checkpoint(self) -> None:
        if self.is_main and self.turns.worker in (None, 0):
            self.agreement.wants_checkpoint = True

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        if not self.turns.acting:
            return torch.zeros((), device=self.device)
        self.turns.ensure_reduced()
        return torch.nn.utils.clip_grad_norm_(self.turns.parameters, max_norm, norm_type)

    def report_epoch(self, epoch: int, seconds: float) -> None:
        inside_s, self.loop_s = self.loop_s, 0.0
        if self.is_main:
            self.channel.send("epoch", epoch=epoch, inside_s=inside_s, outside_s=seconds - inside_s)

    def finish(self) -> None:
        if self.checkpoints is not None:
            checkpointing.save_result(self)
        self.agreement.restore_sigterm()
        self.channel.send("finished" if self.is_main else "done", step=self.position.step, reason=self.stop_reason)


def find_store(settings: Settings, environ: Mapping[str, str]) -> dist.Store | None:
    """The store the processes meet at: our launcher's, torchrun's, or none for a process alone."""
    if settings.store is not None:
        return connect_store(settings.store, settings.collective_timeout_s)
    if "RANK" not in environ or "MASTER_ADDR" not in environ:
        return None
    served = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(
        environ["MASTER_ADDR"],
        int(environ["MASTER_PORT"]),
        is_master=not served and environ["RANK"] == "0",
        wait_for_workers=False,
        timeout=timedelta(seconds=settings.collective_timeout_s),
    )
    return dist.PrefixStore(f"springtide/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def check_order(logical_workers: int, channel: Channel) -> None:
    """Say what is lost if the installed gloo does not add in the order that is imitated."""
    if gloo_order.check_installed(min(logical_workers, 4)):
        return
    channel.warn(
        "this torch's gloo adds gradients in another order than the one springtide imitates: runs stay equal to each "
        "other on any number of processes, but not to stock DistributedDataParallel"
    )
