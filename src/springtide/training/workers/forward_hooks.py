"""A listener on a model's forward that stays with the model it was put on: copies and saved models do not have it."""

from collections.abc import Callable
from typing import Any

import torch


def do_nothing(*_: Any) -> None:
    """What a copied or saved model has in the listener's place."""


class ForwardListener:
    """Calls back before and after a model's forward; a deep copy or a pickle of it does nothing."""

    def __init__(self, callback: Callable[..., None]) -> None:
        self.callback = callback

    def __call__(self, *args: Any) -> None:
        self.callback(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return do_nothing

    def __reduce__(self) -> str | tuple[Any, ...]:
        return get_nothing, ()


def get_nothing() -> Callable[..., None]:
    """For a pickle: a listener that does nothing."""
    return do_nothing


def listen(model: torch.nn.Module, before: Callable[..., None], after: Callable[[], None]) -> None:
    """Call `before(arguments)` before the model's forward and `after()` after it."""
    model.register_forward_pre_hook(ForwardListener(lambda module, inputs: before(inputs)))
    model.register_forward_hook(ForwardListener(lambda module, inputs, output: after()))
