"""Which parameters a logical worker's `training_step` has frozen, as `toggle_optimizer` does, kept apart by worker.

In manual optimization a worker's call is left at `optimizer.step()`, often with the parameters of other optimizers
frozen, and the next worker's call begins: it must find them as they were.
"""

import contextlib
from collections.abc import Iterator
from typing import Any


class WorkerToggles:
    """What is frozen in each worker's call of one `training_step`."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.own: dict[int, tuple[list[bool], Any]] = {}

    @contextlib.contextmanager
    def of(self, worker: int) -> Iterator[None]:
        """Within, parameters are as the worker's call has left them; afterwards as they were before."""
        common = self.read()
        self.write(self.own.get(worker, common))
        try:
            yield
        finally:
            self.own[worker] = self.read()
            self.write(common)

    def leave(self) -> None:
        """After all calls have ended: parameters are as each of them has left them."""
        self.write(next(iter(self.own.values())))

    def read(self) -> tuple[list[bool], Any]:
        """What is trained, and what Lightning remembers to put back."""
        return [one.requires_grad for one in self.module.parameters()], self.module._param_requires_grad_state

    def write(self, state: tuple[list[bool], Any]) -> None:
        """Make parameters what they were."""
        flags, remembered = state
        for parameter, flag in zip(self.module.parameters(), flags, strict=True):
            if parameter.requires_grad != flag:
                parameter.requires_grad = flag
        self.module._param_requires_grad_state = remembered
