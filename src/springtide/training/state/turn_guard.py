"""A guard against what turns must not do: change what belongs to all logical workers.

A learning rate, a schedule, an average or a weight that is changed within `for ... in step:` is changed once for every
logical worker of a process, so otherwise on every number of processes. In a process's first walks, and after them as
often as its share of the time allows, a number per piece of the state is taken before the turns and after them. With
several processes those are walks that follow a comparison of their states, the same on all of them.
"""

import time
import warnings
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING

from springtide.errors import JobError
from springtide.training.state.divergence import line_up, number_state, number_tensor
from springtide.training.state.script.loose_tensors import (
    LooseTensors,
    LooseWeight,
    look_at_loose,
    refuse_weight,
    tell_weight,
)
from springtide.training.state.script.weight_trials import WeightTrial

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

#: Walks that are always looked at: the second sees what the first has made, such as an optimizer's state. So are those
#: of a run's first epochs: `if epoch >= warm:` begins with something late. Later looks refuse only what is sure.
FIRST = 2
EPOCHS = 4
#: One part in so many of the time is spent on looking at those after them.
PARTS = 600
#: What each worker's turn may change; an epoch's first turn reads the stream's next beginning.
OWN = ("buffer", "items", "module", "order", "random")


class TurnGuard:
    """What the state was before the turns, where they are looked at."""

    def __init__(self, warn: Callable[[str], None] = warnings.warn) -> None:
        self.warn = warn
        self.walks = 0
        self.due_s = 0.0
        self.before: dict[str, int] | None = None
        #: What the present look has taken so far, with what others have spent on it.
        self.spent_s = 0.0
        #: What belongs to no model: to find it takes a look at all that is alive.
        self.loose: LooseTensors | None = None
        #: Whether turns need what others have left in that is tried in the walk after a look.
        self.trial = WeightTrial()

    def begin_epoch(self, run: "ElasticRun") -> None:
        """Where one of the first epochs is entered: look at its first walks, if this process has looked before."""
        if self.walks > 0 and run.position.epoch < EPOCHS:
            self.walks = 0
            look_again(run)

    def begin(self, run: "ElasticRun") -> None:
        """Before the turns."""
        self.before = None
        self.walks += 1
        began_s = time.monotonic()
        # A process that looks keeps the others waiting, so all look in the same walk: one after a comparison, of which
        # all know.
        is_due = began_s >= self.due_s and (run.group is None or run.compared)
        if self.walks > FIRST and not is_due:
            return
        if self.walks > FIRST:
            look_again(run)
        self.before = number_common(run)
        self.loose = look_at_loose(run.models, run.device)
        self.spent_s = 0.0
        self.note(time.monotonic() - began_s)

    def note(self, seconds: float) -> None:
        """So many seconds were spent on looking; the next look by its time is to be as far as that makes it."""
        self.spent_s += seconds
        self.due_s = time.monotonic() + PARTS * self.spent_s

    def end(self, run: "ElasticRun") -> None:
        """After the turns."""
        began_s = time.monotonic()
        # Under a scaler gradients may be no numbers by themselves.
        refuse = partial(tell_weight, warn=self.warn) if run.scalers else refuse_weight
        set_anew = self.trial.end_walk(run.models, refuse)
        if self.before is not None:
            refuse_changed(self.before, number_common(run))
        if self.loose is not None:
            changed, self.loose = self.loose.find_changed(run.device), None
            self.judge([one for one in changed if one.key not in set_anew], run)
            self.note(time.monotonic() - began_s)
        if spent_s := run.memory.take_spent() + run.iterators.take_spent():
            self.note(spent_s)

    def judge(self, changed: Sequence[LooseWeight], run: "ElasticRun") -> None:
        """Try the weights that turns have changed, and only tell of those that are the model's, as all ranks have them.

        And in a late look: so far the script may have been right, and have run for hours.
        """
        is_late = run.position.epoch >= EPOCHS
        common = {int(number_tensor(one)) for model in run.models for one in model.parameters()} if changed else set()
        told = [one for one in changed if is_late or is_among(one, common)]
        self.trial.add(one for one in changed if one not in told)
        if told:
            tell_weight(told[0], self.warn)


def is_among(weight: LooseWeight, common: Container[int]) -> bool:
    """Whether a weight's number is one of these."""
    tensor = weight.find()
    return tensor is not None and int(number_tensor(tensor)) in common


def refuse_changed(before: dict[str, int], after: dict[str, int]) -> None:
    """Refuse what the turns have changed of what is common to all."""
    changed = next((name for name, number in before.items() if after.get(name) != number), None)
    if changed is not None:
        raise JobError(
            f"{changed} was changed inside `for ... in step:`, which runs once for every logical worker of a "
            "process; change it after that loop, which is once per global step"
        )


def look_again(run: "ElasticRun") -> None:
    """Look for what turns hand on in the next ones, too."""
    run.memory.look_again()
    run.iterators.look_again()


def number_common(run: "ElasticRun") -> dict[str, int]:
    """A number per piece of state that turns leave alone."""
    state = dict(number_state(run, but=OWN))
    return dict(zip(state, line_up(state.values(), run.device).tolist(), strict=True))
