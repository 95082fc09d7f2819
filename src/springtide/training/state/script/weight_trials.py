"""Whether turns need what those before them have left in weights beside a model's: it is taken away for a walk.

A learner that every turn sets to the model's weights is as good as new, an average that every turn updates is not, and
from outside both have changed. So for the turns of one walk such weights are no numbers when a turn begins. What a turn
sets as a whole before it reads it shows no trace of that; what it computes of them is no number, or its gradients are.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from springtide.training.state.digests import is_sharded
from springtide.training.state.script.loose_tensors import LooseWeight, refuse_weight

#: By the type of a tensor, integers of its size and the bits of a *signalling* "no number". What is computed of one has
#: other bits, so a tensor that still has these was left alone.
SIGNALS: dict[torch.dtype, tuple[torch.dtype, int]] = {
    torch.float16: (torch.int16, 0x7D00),
    torch.bfloat16: (torch.int16, 0x7FA0),
    torch.float32: (torch.int32, 0x7FA00000),
    torch.float64: (torch.int64, 0x7FF4000000000000),
}


@dataclass(frozen=True, slots=True)
class TakenWeight:
    """What was in the tensor of a weight when its numbers were taken away."""

    weight: LooseWeight
    tensor: torch.Tensor
    numbers: torch.Tensor


class WeightTrial:
    """Weights that turns have changed, and what becomes of them in turns that do not find them."""

    def __init__(self) -> None:
        self.weights: dict[tuple[int, str], LooseWeight] = {}
        self.taken: list[TakenWeight] = []
        #: Those that a turn of this walk has set as a whole.
        self.set_anew: set[tuple[int, str]] = set()

    def add(self, weights: Iterable[LooseWeight]) -> None:
        """Try these in the next walk, and until a turn sets them; what cannot be tried is refused."""
        for weight in weights:
            tensor = weight.find()
            if tensor is not None and not can_be_taken(tensor):
                refuse_weight(weight)
            self.weights[weight.key] = weight

    def begin_turn(self) -> None:
        """Take them away."""
        for weight in self.weights.values():
            tensor = weight.find()
            if tensor is not None and can_be_taken(tensor):
                self.taken.append(TakenWeight(weight, tensor, tensor.detach().clone()))
                words, bits = SIGNALS[tensor.dtype]
                tensor.data.view(words).fill_(bits)  # by `.data`, for a graph may count its changes

    def end_turn(self) -> None:
        """Give back what the turn has left alone, and refuse what it has computed of it."""
        taken, self.taken = self.taken, []
        handed_on: list[LooseWeight] = []
        for one in reversed(taken):  # two may have the same memory
            now = one.weight.find()
            if now is one.tensor and is_left_alone(now):
                now.data.copy_(one.numbers)
            elif now is not None and bool(now.isnan().any()):
                handed_on.append(one.weight)
            else:
                self.set_anew.add(one.weight.key)
        if handed_on:
            refuse_weight(handed_on[-1])

    def end_walk(
        self, models: Iterable[torch.nn.Module], refuse: Callable[[LooseWeight], None]
    ) -> set[tuple[int, str]]:
        """Refuse a weight that gradients were computed of; those that turns have set anew, which are tried no more."""
        gradients = [one.grad for model in models for one in model.parameters() if one.grad is not None]
        if self.weights and any(bool(one.isnan().any()) for one in gradients if not is_sharded(one)):
            refuse(next(iter(self.weights.values())))
        done, self.set_anew = self.set_anew, set()
        self.weights = {key: one for key, one in self.weights.items() if key not in done}
        return done


def can_be_taken(tensor: torch.Tensor) -> bool:
    """Whether a tensor's numbers can be taken away and put back."""
    return tensor.dtype in SIGNALS and not tensor.is_inference() and 0 not in tensor.stride()


def is_left_alone(tensor: torch.Tensor) -> bool:
    """Whether all of a tensor is as it was when its numbers were taken away."""
    words, bits = SIGNALS[tensor.dtype]
    return bool((tensor.data.view(words) == bits).all())
