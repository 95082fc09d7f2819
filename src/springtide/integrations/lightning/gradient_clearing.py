"""When gradients are cleared in automatic optimization: as Lightning's hooks say, and counted once per update.

Lightning clears them in its closure, after the forward of an update's first batch. Its closure runs once for every
logical worker of the process. Where no hook is overridden they are cleared once, before the turns. Where one is, it is
called where Lightning calls it: `optimizer_zero_grad`, which decides what is cleared, in every worker's turn, and a
callback's `on_before_zero_grad`, which may count, in the first turn of the process only. A module's is refused.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from lightning.pytorch.utilities.model_helpers import is_overridden

if TYPE_CHECKING:
    from springtide.integrations.lightning.elastic_strategy import ElasticStrategy


class GradientClearing:
    """In the place of the clearing that Lightning's loop puts into its closures."""

    def __init__(self, strategy: "ElasticStrategy", trainer: Any) -> None:
        self.strategy = strategy
        self.loop = trainer.fit_loop.epoch_loop.automatic_optimization
        module = trainer.lightning_module
        is_asked = any(is_overridden("on_before_zero_grad", one) for one in trainer.callbacks)
        self.is_plain = not is_asked and not is_overridden("optimizer_zero_grad", module)
        self.loop._make_zero_grad_fn = self.make

    def begin(self, optimizer: Any) -> None:
        """Before the turns of an update: clear what no hook is asked about."""
        if self.is_plain:
            optimizer.zero_grad()

    def make(self, batch_idx: int, optimizer: Any) -> Callable[[], None]:
        """What a closure calls between the forward and the backward of a batch."""
        return partial(self.clear, batch_idx, optimizer)

    def clear(self, batch_idx: int, optimizer: Any) -> None:
        """In a worker's turn: clear what is left from before, at an update's first batch."""
        strategy, counts = self.strategy, self.loop.optim_progress.optimizer.zero_grad
        if strategy.current is None or strategy.number:
            return
        if not self.is_plain and strategy.is_first_turn:
            self.loop._on_before_zero_grad(optimizer)
        else:
            counts.increment_ready()
            counts.increment_started()
        if self.is_plain:
            counts.increment_completed()
        else:
            self.loop._optimizer_zero_grad(batch_idx - (strategy.update_size - 1), optimizer)
