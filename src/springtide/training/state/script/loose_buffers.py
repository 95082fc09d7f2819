"""Buffers of modules that `prepare` was not given: the centre of a criterion, the statistics of a teacher.

In DDP such a buffer is a rank's own. Here it is shared by the logical workers of a process, so a turn that changes it
hands it on to the next one, and other numbers of processes give other bits. Looked at in a process's first walks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from springtide.errors import JobError
from springtide.training.parts import find_alive
from springtide.training.state.divergence import line_up, number_tensor
from springtide.training.state.script.alive_objects import MADE_BY_TORCH, name_objects

#: Buffers by the module that has them and their name there.
Numbers = dict[tuple[int, str], int]


@dataclass(frozen=True, slots=True)
class LooseBuffers:
    """The modules, which are held so that no other has the place of one in memory, and numbers of their buffers."""

    modules: list[torch.nn.Module]
    numbers: Numbers

    def refuse_changed(self, device: torch.device) -> None:
        """Refuse what turns have changed since."""
        after = number_buffers(self.modules, device)
        for module in self.modules:
            for name in module._buffers:
                key = id(module), name
                if key in self.numbers and key in after and self.numbers[key] != after[key]:
                    refuse_buffer(module, name)


def look_at_loose(models: Sequence[torch.nn.Module], device: torch.device) -> LooseBuffers:
    """Number the buffers of every living module that is no part of the models."""
    given = {id(module) for model in models for module in model.modules()}
    # A wrapper or a compiled graph may have the very tensors of a model, which are handled as by DDP.
    places = {one.data_ptr() for model in models for one in (*model.parameters(), *model.buffers())}
    loose = [
        one
        for one in find_alive(is_module)
        if id(one) not in given and not any(buffer.data_ptr() in places for buffer in list_plain(one).values())
    ]
    modules = [one for one in loose if list_plain(one)]
    return LooseBuffers(modules, number_buffers(modules, device))


def is_module(kind: type) -> bool:
    """Whether objects of a type are modules that a script has made."""
    return issubclass(kind, torch.nn.Module) and not kind.__module__.startswith(MADE_BY_TORCH)


def list_plain(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A module's own buffers with something in them that can be read."""
    named = module.__dict__.get("_buffers", {})  # a module that is being made has none yet
    return {
        name: one
        for name, one in named.items()
        if type(one) is torch.Tensor and one.layout is torch.strided and one.numel() and not one.is_meta
    }


def number_buffers(modules: Sequence[torch.nn.Module], device: torch.device) -> Numbers:
    """A number of what is in each buffer."""
    buffers = {(id(module), name): one for module in modules for name, one in list_plain(module).items()}
    if not buffers:
        return {}
    return dict(zip(buffers, line_up(map(number_tensor, buffers.values()), device).tolist(), strict=True))


def refuse_buffer(module: torch.nn.Module, name: str) -> None:
    """Refuse a buffer that turns change."""
    variable = name_objects([module]).get(id(module))
    owner = f"{variable} ({type(module).__name__})" if variable else f"a {type(module).__name__}"
    is_trained = any(parameter.requires_grad for parameter in module.parameters())
    giving = "Give the module to run.prepare, which handles buffers as DDP does; or change" if is_trained else "Change"
    raise JobError(
        f"buffer {name!r} of {owner}, a module that run.prepare was not given, was changed inside `for ... in step:`: "
        "each logical worker of a process would find what the one before it has left, where every rank of DDP has its "
        f"own. {giving} it after that loop, by run.mean(...) of what the turns had, and name the module in "
        "run.keep(...); keep what is each worker's own in step.worker.state, or make the module anew in every turn"
    )
