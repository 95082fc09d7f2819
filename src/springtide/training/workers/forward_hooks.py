"""Hears when a model is called, in a way that stays with the model it was put on: copies and saved models are plain.

A model's call is replaced where torch keeps the compiled call of a model, which it leaves out of pickles and copies.
Hooks would be saved with the model and need us to be loaded, and would split the graphs of compiled models otherwise
than under DDP, with other bits. While a model is called, Dynamo is told of DDP's buckets, as DDP tells it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from springtide.errors import JobError
from springtide.training.reduction.buckets import BUCKET_BYTES

#: Where torch keeps what `model.compile()` makes of a call.
PLACE = "_compiled_call_impl"


@dataclass(frozen=True, slots=True)
class DdpFacts:
    """All that Dynamo asks of the DDP module whose forward is under way: it cuts its graphs where buckets end."""

    bucket_bytes_cap: int = BUCKET_BYTES


class ForwardCalls:
    """The calls of one model: a call within a call, as a compiled model's of the plain one, is no call of its own."""

    def __init__(self, before: Callable[..., None], after: Callable[[], None]) -> None:
        self.before, self.after = before, after
        self.under_way = False

    def enter(self, inputs: Any) -> None:
        """The model is called."""
        self.before(inputs)
        self.under_way = True
        DistributedDataParallel._active_ddp_module = DdpFacts()  # type: ignore[assignment]

    def leave(self) -> None:
        """The model was called."""
        self.forget()
        self.after()

    def forget(self) -> None:
        """No call is under way; one that has failed did not end."""
        self.under_way = False
        DistributedDataParallel._active_ddp_module = None


class ListenedCall:
    """A model's call that is told of."""

    def __init__(self, call: Callable[..., Any], calls: ForwardCalls) -> None:
        self.call, self.calls = call, calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs) if self.calls.under_way else self.listen(args, kwargs)

    @torch._disable_dynamo(recursive=False)
    def listen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call, and tell of it."""
        self.calls.enter(args)
        output = self.call(*args, **kwargs)
        self.calls.leave()
        return output


class ModelListener:
    """Listens to one model, whether it is compiled, and was before `prepare`, or is not."""

    def __init__(self, model: torch.nn.Module, before: Callable[..., None], after: Callable[[], None]) -> None:
        self.model = model
        self.calls = ForwardCalls(before, after)
        self.hooked: set[int] = set()
        self.begin()

    def begin(self) -> None:
        """Be where calls of the model pass, also if it was compiled meanwhile; forget what is past."""
        self.calls.forget()
        if is_compiled(type(self.model)):
            self.put_hooks(self.model)
        elif not isinstance(self.model.__dict__.get(PLACE), ListenedCall):
            call = self.model.__dict__.get(PLACE) or self.model._call_impl
            self.model.__dict__[PLACE] = ListenedCall(call, self.calls)

    def find_compiled(self, compiled: Iterable[Any]) -> None:
        """Listen to what torch.compile(model) has returned, if it is among these."""
        for module in compiled:
            if module._orig_mod is self.model:
                refuse_uncompiled(self.model)
                self.put_hooks(module)

    def put_hooks(self, compiled: torch.nn.Module) -> None:
        """Listen to such a module, once. Its own hooks are not traced."""
        if id(compiled) not in self.hooked:
            self.hooked.add(id(compiled))
            calls = self.calls
            compiled.register_forward_pre_hook(lambda module, inputs: calls.enter(inputs))
            compiled.register_forward_hook(lambda module, inputs, output: calls.leave())


def is_compiled(kind: type) -> bool:
    """Whether this is what torch.compile(model) returns; asked by name, for Dynamo takes seconds to import."""
    return kind.__name__ == "OptimizedModule" and kind.__module__.startswith("torch._dynamo")


def refuse_uncompiled(model: torch.nn.Module) -> None:
    """Refuse what torch compiles by itself and not under DDP: a model of a class of torch's own, after `prepare`."""
    if type(model).__module__.startswith("torch.nn."):
        raise JobError(
            f"torch.compile(model) was called after run.prepare, and the model is a {type(model).__name__}, a class of "
            "torch's own: around DDP torch leaves such a model uncompiled, so the bits would be others. Compile it "
            "before run.prepare, or in place with model.compile()"
        )
