"""The gradients of one model within a global step: each logical worker's backwards staged, then reduced as DDP would.

DDP reduces after every backward that follows a forward. Logical workers take turns, so the k-th backward of each is
kept as *round* k, and the rounds are reduced one after the other when all turns have ended. Whoever reads gradients
after that sees what every rank of DDP would. Random state and buffers of a turn are in `contexts` and `buffers`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch

from springtide.errors import JobError, NondeterminismError
from springtide.training.group.groups import Group
from springtide.training.group.rosters import Roster
from springtide.training.reduction import buckets
from springtide.training.reduction.backward_rounds import BackwardRound, UnusedCounts
from springtide.training.reduction.buckets import BucketLayout
from springtide.training.reduction.gradients import (
    Arrivals,
    Departures,
    FlatGradients,
    fill_own,
    refuse_modules,
    trained_parameters,
)
from springtide.training.reduction.reduction import make_reduction

MOST_NAMES = 5
#: Walks of a process in which it is looked whether gradients are dense; a model has them so or not from the start.
LOOKS = 2
#: What adds nothing: x + -0.0 has the bits of x for every x, which x + 0.0 has not for x = -0.0.
NOTHING = -0.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands among the others."""

    roster: Roster
    rank: int
    group: Group | None
    #: Whether a ring of the backend's own adds in the order of our sums, so that it may be used.
    rings: bool

    @property
    def local(self) -> list[int]:
        """The logical workers of this process."""
        return list(self.roster.workers_of(self.rank))


class ModelGradients:
    """One model's gradients, from the turns of this process's logical workers to the reduced ones."""

    def __init__(self, model: torch.nn.Module, title: str, find_unused: bool, overlapping: bool) -> None:
        refuse_modules(model)
        self.title = title
        self.parameters = trained_parameters(model)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.names = [title + names[id(parameter)] for parameter in self.parameters]
        self.frozen = [(name, one) for name, one in model.named_parameters() if not one.requires_grad]
        self.find_unused = find_unused
        self.overlapping = overlapping
        self.layout = buckets.first_layout(self.parameters, find_unused)
        self.rebuilt = find_unused
        self.ready_order: list[int] = []
        self.rounds: list[BackwardRound] = []
        self.arrivals = Arrivals(self.parameters, self)
        #: The gradients that the present walk, or the last one, was begun with and adds to; None: none of them.
        self.carry: list[torch.Tensor | None] | None = None
        self.walks = 0
        self.kept_carry = False
        self.kept: list[torch.Tensor | None] = []
        #: What autograd has made in this walk's last turn: tensors that are the script's once the sums are in them.
        self.made: list[torch.Tensor | None] = []
        self.placed: list[int] = []
        #: The gradients that a turn, or what follows a round of it, was begun with; None: none of them.
        self.begun: list[torch.Tensor | None] | None = None
        self.worker: int | None = None
        self.number = 0
        self.counts: dict[int, int] = {}
        #: Whether backwards are held back (accumulation), and whether some were that no reduction has followed yet.
        self.holding = False
        self.held = False
        self.called = False
        self.calls_forward = True
        #: Where no turn is: whether a backward is refused, because a step is under way.
        self.guarding = False

    # A place among processes.

    def configure(self, place: Place) -> None:
        """Take a place in a roster: buffers for its logical workers, and a reduction over its processes."""
        self.place = place
        self.local = place.local
        self.scale = 1.0 / place.roster.logical_workers
        del self.rounds[1:]
        kept = self.rounds[0].flats if self.rounds else {}
        self.rounds = [self.make_round(self.layout, kept)]

    def make_round(self, layout: BucketLayout, kept: dict[int, FlatGradients] | None = None) -> BackwardRound:
        """Buffers of a layout for every local worker, of which some may be there, and a reduction over them."""
        own = {worker: flat for worker, flat in (kept or {}).items() if worker in self.local}
        spare = [flat for worker, flat in (kept or {}).items() if worker not in self.local]
        flats = {
            worker: own.get(worker) or (spare.pop() if spare else FlatGradients(self.parameters))
            for worker in self.local
        }
        for flat in flats.values():
            flat.arrange(layout)
        place = self.place
        reduction = make_reduction(layout, flats, place.roster, place.group, place.rings)
        return BackwardRound(layout, flats, reduction, Departures(layout, self.send))

    def adopt_layout(self, indices: Sequence[Sequence[int]], rebuilt: bool) -> None:
        """Follow a layout that was recorded earlier, before any step is taken with another."""
        self.layout = buckets.place(indices, self.parameters)
        self.rebuilt = rebuilt
        self.rounds = [self.make_round(self.layout, self.rounds[0].flats)]

    # A worker's turn.

    def begin_turn(self, worker: int) -> None:
        """Start a worker's turn, with the gradients every rank would have had at this point."""
        if worker == self.local[0]:
            self.begin_walk()
        elif self.carry is not None:
            self.place_carry(self.carry)
        else:
            self.drop_gradients()
        self.worker, self.number = worker, 0
        self.called = False
        self.note_begun()
        if not self.calls_forward:
            self.keep_carry()

    def note_begun(self) -> None:
        """Remember the gradients that are there, to tell those that no backward has brought."""
        self.begun = None if self.carry is None else [parameter.grad for parameter in self.parameters]

    def begin_walk(self) -> None:
        """Note the gradients left from before, which the turns will add to unless they clear them."""
        for name, parameter in self.frozen:
            if parameter.requires_grad:
                raise JobError(
                    f"parameter {self.title}{name} did not require a gradient in run.prepare and does now; DDP would "
                    "leave its gradients unreduced. Let it require them from the start (with find_unused_parameters="
                    "True where it is not used yet), or train the stages as jobs of their own"
                )
        self.walks += 1
        present = any(parameter.grad is not None for parameter in self.parameters)
        self.carry = [parameter.grad for parameter in self.parameters] if present else None
        self.kept_carry = False
        self.kept = []
        self.counts = {}

    def begin_batch(self, holding: bool) -> None:
        """Start one of a turn's mini-batches; DDP reduces after the backward of the last one."""
        self.holding = holding
        self.allow_departures()

    def allow_departures(self) -> None:
        """Let full buckets leave during the coming backward, if it is the last turn's first reduction."""
        last = self.worker == self.local[-1] and self.number == 0
        if self.overlapping and last and not self.holding and self.place.group is not None:
            self.arrivals.departures = self.rounds[0].departures.begin()

    def before_forward(self) -> None:
        """The model is called: what an earlier backward of this turn brought is a round of its own."""
        if self.worker is not None and self.arrivals.order and torch.is_grad_enabled():
            self.close_round()
            self.place_nothing()

    def after_forward(self) -> None:
        """The model was called: whoever clears gradients first has done so by now, or adds to them."""
        self.called = True
        if self.worker is not None and torch.is_grad_enabled():
            self.keep_carry()

    def keep_carry(self) -> None:
        """Clone gradients that the user has not cleared, or forget them if they were cleared by now."""
        if self.kept_carry or self.carry is None:
            return
        self.kept_carry = True
        if all(parameter.grad is None for parameter in self.parameters):
            self.carry = None
            return
        self.carry = [None if parameter.grad is None else parameter.grad.clone() for parameter in self.parameters]
        self.place_carry(self.carry)
        self.note_begun()

    def place_carry(self, carry: Sequence[torch.Tensor | None]) -> None:
        """Start a worker from carried gradients, in memory of its own."""
        for parameter, gradient in zip(self.parameters, carry, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()

    def place_nothing(self) -> None:
        """Let the next backward of the turn start from gradients that add nothing; they are seen if they are cleared.

        What DDP has there, the sum of the round before, is not known yet and is added when it is.
        """
        for parameter in self.parameters:
            parameter.grad = torch.full_like(parameter, NOTHING)
        self.placed = [read_version(parameter) for parameter in self.parameters]
        self.begun = [parameter.grad for parameter in self.parameters]

    def drop_gradients(self) -> None:
        """Take all gradients away from the parameters."""
        for parameter in self.parameters:
            parameter.grad = None

    def turn_away(self, index: int, gradient: torch.Tensor | None) -> None:
        """Refuse an arriving gradient that is not to be reduced, unless it is nobody's or held back."""
        if self.worker is None:
            if self.guarding:
                raise JobError(
                    f"a backward brought a gradient of {self.names[index]} outside `for ... in step:`, where it is no "
                    "logical worker's; call backward inside that loop. For a gradient that is the same on every "
                    "process, use torch.autograd.grad"
                )
        elif gradient is None:
            raise JobError(
                f"a hook has cleared the gradient of {self.names[index]} in the backward that brought it, as one that "
                "updates weights does; gradients are reduced when `for ... in step:` ends, so update and clear after it"
            )
        elif gradient.requires_grad:
            raise JobError(
                f"the gradient of {self.names[index]} has a graph of its own (backward(create_graph=True)), which "
                "DistributedDataParallel does not reduce; use torch.autograd.grad for it, and call backward on the sum"
            )
        elif self.holding:
            self.held = True
        else:
            raise JobError(
                f"a second backward after one forward brought another gradient of {self.names[index]}; "
                "DistributedDataParallel would not reduce it. Add the losses and call backward once, or call the model "
                "again before the second backward"
            )

    def close_round(self) -> None:
        """Stage what a backward of this turn has brought as the next round."""
        assert self.worker is not None
        if self.number == len(self.rounds):
            self.rounds.append(self.make_round(self.next_layout()))
        current = self.rounds[self.number]
        departures = self.arrivals.departures
        self.check_unchanged()
        arrived, order = self.arrivals.seen, self.arrivals.pop()
        self.check_arrived(arrived)
        self.note_unused(current, arrived)
        if self.number == 0:
            for bucket in range(departures.left if departures is not None else 0, len(current.layout.buckets)):
                self.send(bucket) if self.overlapping else self.stage(bucket)
        else:
            current.flats[self.worker].keep()
        if self.number == 0 and not self.rebuilt:
            self.check_order(self.worker, order)
        self.number += 1
        self.held = False

    def next_layout(self) -> BucketLayout:
        """The layout of a further round: DDP rebuilds after its very first backward."""
        return self.layout if self.rebuilt else buckets.rebuilt_layout(self.parameters, self.ready_order)

    def send(self, bucket: int) -> None:
        """Stage one bucket of the first round for the worker whose turn it is, and start its exchange."""
        assert self.worker is not None
        self.stage(bucket)
        self.rounds[0].reduction.launch(self.worker, bucket)

    def stage(self, bucket: int) -> None:
        """Keep one bucket of the first round for the worker whose turn it is."""
        assert self.worker is not None
        current = self.rounds[0]
        for index in current.layout.buckets[bucket].parameters if self.walks <= LOOKS else ():
            gradient = self.parameters[index].grad
            if gradient is not None and gradient.layout is not torch.strided:
                raise NondeterminismError(
                    f"parameter {self.names[index]} has a sparse gradient; the sum of sparse gradients has no fixed "
                    "order, so pass sparse=False"
                )
        current.flats[self.worker].store(bucket, self.scale)

    def check_unchanged(self) -> None:
        """Refuse gradients that were clipped, unscaled or cleared before they were reduced."""
        for index, (brought, version) in zip(self.arrivals.order, self.arrivals.brought, strict=True):
            if self.parameters[index].grad is not brought or brought._version != version:
                raise JobError(
                    f"the gradient of {self.names[index]} was changed or cleared inside `for ... in step:` after the "
                    "backward that brought it; gradients are reduced when that loop ends, so clip, unscale and clear "
                    "them after it"
                )

    def check_arrived(self, arrived: bytearray) -> None:
        """Refuse missing gradients as DDP does."""
        if len(arrived) == sum(arrived):
            return
        self.check_brought(arrived)
        if self.find_unused:
            return
        names = [self.names[index] for index, there in enumerate(arrived) if not there]
        raise JobError(
            f"parameters without a gradient in logical worker {self.worker}: {', '.join(names[:MOST_NAMES])}"
            f"{' and more' if len(names) > MOST_NAMES else ''}; use them in the loss, or pass "
            "find_unused_parameters=True to run.prepare"
        )

    def check_brought(self, arrived: bytearray) -> None:
        """Refuse gradients that were put in place by hand, which would not be reduced."""
        if self.held:
            return
        for index, parameter in enumerate(self.parameters):
            begun = None if self.begun is None else self.begun[index]
            if not arrived[index] and parameter.grad is not None and parameter.grad is not begun:
                raise JobError(
                    f"the gradient of {self.names[index]} was put in place by hand inside `for ... in step:`; only "
                    "what a backward brings is reduced there. Keep what each turn has found in a list, and set "
                    "parameter.grad = run.mean(list) after that loop"
                )

    def note_unused(self, current: BackwardRound, arrived: bytearray) -> None:
        """Note what this worker's backward left alone, and what gradients it had cleared before."""
        assert self.worker is not None
        current.unused[self.worker] = {index for index, there in enumerate(arrived) if not there}
        current.cleared[self.worker] = (
            {index for index in range(len(arrived)) if self.was_cleared(index, arrived)} if self.number else set()
        )
        if self.number == 0 and self.worker == self.local[0]:
            self.kept = [None if arrived[index] else one.grad for index, one in enumerate(self.parameters)]

    def was_cleared(self, index: int, arrived: bytearray) -> bool:
        """Whether gradients that add nothing, placed after a round, were cleared since: taken away, or zeroed."""
        return read_version(self.parameters[index]) != self.placed[index] + arrived[index]

    def check_order(self, worker: int, order: list[int]) -> None:
        """Refuse a backward whose gradients come in another order than the first local worker's."""
        if worker == self.local[0]:
            self.ready_order = order
        elif order != self.ready_order:
            pairs = enumerate(zip_longest(order, self.ready_order))
            place, (found, expected) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
            raise JobError(
                f"the model's forward differs between logical workers {self.local[0]} and {worker} in their first "
                f"step: gradient number {place} is {self.name(found)} instead of {self.name(expected)}; the forward "
                "must not depend on the rank or on chance"
            )

    def name(self, index: int | None) -> str:
        """A parameter's name, for errors."""
        return "none" if index is None else self.names[index]

    def end_turn(self) -> None:
        """End a worker's turn; what its last backward brought is staged."""
        assert self.worker is not None
        if self.arrivals.order:
            if not self.called:
                self.calls_forward = False
            self.close_round()
        elif self.held:
            raise JobError(
                "gradients were held back by run.no_sync() to the end of a turn; leave the turn's last backward out of "
                "it, or pass accumulate= to run.prepare"
            )
        else:
            self.check_brought(self.arrivals.seen)
        self.counts[self.worker] = self.number
        first = self.counts[self.local[0]]
        if self.number != first:
            raise JobError(
                f"logical worker {self.worker} called backward {self.number} times in its turn, worker "
                f"{self.local[0]} {first} times; every worker must do the same, as ranks of DDP must"
            )
        if self.worker == self.local[-1]:
            self.keep_made()
        self.drop_gradients()
        self.worker = None

    def keep_made(self) -> None:
        """Keep the tensors that the last turn has made; not those that the script may have from the step before."""
        if self.carry is None or self.kept_carry:
            self.made = [parameter.grad for parameter in self.parameters]
        self.begun = None

    # The end of all turns.

    def send_rest(self) -> None:
        """Start what is left of the first round's exchange, after which the group is free for others."""
        if self.counts.get(self.local[0], 0):
            if not self.overlapping:
                self.launch(self.rounds[0])
            self.rounds[0].reduction.launch_rest()

    def end_walk(self) -> None:
        """Reduce every round, and hand the last sums to the parameters."""
        count = self.counts.get(self.local[0], 0)
        sums: list[torch.Tensor | None] = self.kept
        for number in range(count):
            current = self.rounds[number]
            if number:
                self.add_sums(current, sums)
                self.launch(current)
                current.reduction.launch_rest()
            unused = self.count_unused(current) if self.find_unused else None
            current.reduction.finish()
            sums = self.find_sums(current, sums, unused)
            if not self.rebuilt:
                self.rebuild()
        if count:
            made, self.made = self.made, []
            self.put_back(fill_own(sums, made, self.kept, self.rounds[count - 1].layout))
        else:
            self.put_back(self.find_untouched())
        if self.rounds[0].layout is not self.layout:
            self.rounds[0] = self.make_round(self.layout, self.rounds[0].flats)

    def put_back(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Give the parameters their gradients."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient

    def find_untouched(self) -> Sequence[torch.Tensor | None]:
        """The gradients from before a walk without a backward."""
        return self.carry if self.carry is not None else [None] * len(self.parameters)

    def add_sums(self, current: BackwardRound, sums: Sequence[torch.Tensor | None]) -> None:
        """Add the sums of the round before to every worker's part of this one, and scale it."""
        for worker in self.local:
            views, cleared = current.flats[worker].views, current.cleared[worker]
            for index, view in enumerate(views):
                before = sums[index]
                if before is not None and index not in cleared:
                    view.add_(before)
                view.mul_(self.scale)

    def launch(self, current: BackwardRound) -> None:
        """Start the exchange of what every worker has in a round."""
        for worker in self.local:
            for bucket in range(len(current.layout.buckets)):
                current.reduction.launch(worker, bucket)

    def count_unused(self, current: BackwardRound) -> UnusedCounts:
        """Start counting the logical workers that did not use each parameter; it travels while the sums do."""
        counts = torch.zeros(len(self.parameters), dtype=torch.int32, device=self.parameters[0].device)
        for worker in self.local:
            counts[sorted(current.unused[worker])] += 1
        group = self.place.group
        return UnusedCounts(counts, None if group is None else group.all_reduce(counts))

    def find_sums(
        self, current: BackwardRound, before: Sequence[torch.Tensor | None], unused: UnusedCounts | None
    ) -> list[torch.Tensor | None]:
        """The reduced gradients of a round; a parameter that no logical worker used keeps what it had, as in DDP."""
        views: list[torch.Tensor | None] = list(current.flats[self.local[0]].views)
        if unused is None:
            return views
        cleared = current.cleared[self.local[0]]
        for index in unused.find(self.place.roster.logical_workers):
            views[index] = None if index in cleared else before[index]
        return views

    def rebuild(self) -> None:
        """After the first reduction: change to the buckets DDP would rebuild, by rank 0's order of readiness."""
        order = self.ready_order
        if self.place.group is not None:
            order = self.place.group.share(order, 0, self.parameters[0].device)
        if order != self.ready_order:
            raise JobError(
                f"the model's forward differs between logical worker 0 and {self.local[0]} in their first step: "
                "gradients became ready in another order; the forward must not depend on the rank or on chance"
            )
        self.layout = buckets.rebuilt_layout(self.parameters, order)
        self.rebuilt = True

    def may_add_to(self, index: int) -> bool:
        """Whether the next walk may add to a gradient that an optimizer has used: the last one did, or is the first."""
        return self.walks <= 1 or (self.carry is not None and self.carry[index] is not None)

    def abandon(self) -> None:
        """Leave a walk that will not be finished."""
        self.worker = None
        self.held = self.holding = False
        self.made = []
        self.arrivals.pop()


def read_version(parameter: torch.Tensor) -> int:
    """How often a parameter's gradient was written to; -1 if it has none."""
    return -1 if parameter.grad is None else parameter.grad._version
