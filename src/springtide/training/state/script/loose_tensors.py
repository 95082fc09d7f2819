"""What belongs to no model of `prepare`: a criterion's centre, a teacher, an average of weights in a list or a dict.

In DDP such a thing is a rank's own. Here it is shared by the logical workers of a process, so a turn that changes it
hands it on to the next one, and other numbers of processes give other bits. Looked at where the guard of turns looks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from springtide.errors import JobError
from springtide.training.living_objects import find_alive
from springtide.training.state.digests import is_sharded
from springtide.training.state.divergence import line_up, number_tensor
from springtide.training.state.script.alive_objects import (
    MADE_BY_TORCH,
    find_copies,
    list_forms,
    list_tensors,
    name_objects,
)

#: The tensors of one owner: whose they are (a module or a container), and the name of each there.
Numbers = dict[tuple[int, str, torch.dtype], int]
PLAIN = (torch.Tensor, torch.nn.Parameter)
#: How far from the weights a copy of their shapes is an average of them, as a share of their norm: gradients are not.
NEAR = 0.5
ANEW = (
    "each logical worker of a process would find what the one before it has left, where every rank of DDP has its own"
)


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """A list or a dict with tensors of a model's shapes, near its weights, by the variable that leads to it."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class LooseWeight:
    """A tensor that is no buffer, by the module or the copy whose it is, and its name there."""

    owner: torch.nn.Module | Copy
    name: str

    @property
    def key(self) -> tuple[int, str]:
        """What it has in every look."""
        return id(self.owner if isinstance(self.owner, torch.nn.Module) else self.owner.value), self.name

    def find(self) -> torch.Tensor | None:
        """The tensor that is there now."""
        if isinstance(self.owner, torch.nn.Module):
            return self.owner._parameters.get(self.name)
        tensors = list_tensors(self.owner.value)
        return tensors[int(self.name)] if int(self.name) < len(tensors) else None

    def describe(self) -> str:
        """In words."""
        if isinstance(self.owner, torch.nn.Module):
            return f"parameter {name_owned(self.owner, self.name)}"
        return f"`{self.owner.name}`, a copy or an average of a model's weights,"


@dataclass(frozen=True, slots=True)
class LooseTensors:
    """Modules and copies, which are held so that no other has the place of one in memory, and numbers of theirs."""

    modules: list[torch.nn.Module]
    copies: list[Copy]
    numbers: Numbers

    def find_changed(self, device: torch.device) -> list[LooseWeight]:
        """The weights that turns have changed since; a buffer is refused."""
        after = number_all(self.modules, self.copies, device)
        owners: dict[int, torch.nn.Module | Copy] = {id(one.value): one for one in self.copies}
        owners |= {id(one): one for one in self.modules}
        keys = [key for key, number in self.numbers.items() if after.get(key, number) != number]
        changed = [LooseWeight(owners[owner], name) for owner, name, _ in keys]
        for one in changed:
            if isinstance(one.owner, torch.nn.Module) and one.name in one.owner._buffers:
                refuse_buffer(one.owner, one.name)
        return changed


def look_at_loose(models: Sequence[torch.nn.Module], device: torch.device) -> LooseTensors:
    """Number the tensors of every living module that is no part of the models, and averages of the models' weights."""
    given = {id(module) for model in models for module in model.modules()}
    # A wrapper or a compiled graph may have the very tensors of a model, which are handled as by DDP.
    places = {one.data_ptr() for model in models for one in (*model.parameters(), *model.buffers())}
    loose = [
        one
        for one in find_alive(is_module)
        if id(one) not in given and not any(tensor.data_ptr() in places for _, tensor in list_plain(one))
    ]
    modules = [one for one in loose if any(True for _ in list_plain(one))]
    copies = list(find_averages(models))
    return LooseTensors(modules, copies, number_all(modules, copies, device))


def is_module(kind: type) -> bool:
    """Whether objects of a type are modules that a script has made."""
    return issubclass(kind, torch.nn.Module) and not kind.__module__.startswith(MADE_BY_TORCH)


def list_plain(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """A module's own buffers and parameters with something in them that can be read."""
    for kind in ("_buffers", "_parameters"):  # a module that is being made has none yet
        for name, one in list(module.__dict__.get(kind, {}).items()):
            if is_plain(one):
                yield name, one


def is_plain(one: Any) -> bool:
    """Whether a value is an ordinary tensor with something in it."""
    return type(one) in PLAIN and one.layout is torch.strided and bool(one.numel()) and not one.is_meta


def find_averages(models: Sequence[torch.nn.Module]) -> Iterator[Copy]:
    """Lists and dicts of the script with tensors of a model's shapes that are near its weights, and are not these."""
    whole = [model for model in models if not any(map(is_sharded, model.parameters()))]
    known = {id(one) for model in whole for one in (*model.parameters(), *model.buffers())}
    for name, value in find_copies(whole, known):
        tensors = list_tensors(value)
        if all(map(is_plain, tensors)) and any(is_near(tensors, model) for model in whole):
            yield Copy(name, value)


@torch.no_grad()
def is_near(tensors: Sequence[torch.Tensor], model: torch.nn.Module) -> bool:
    """Whether tensors are near the weights of a model, and have other memory."""
    for form in list_forms(model):
        if [one.shape for one in form] != [one.shape for one in tensors]:
            continue
        pairs = [(one, w) for one, w in zip(tensors, form, strict=True) if w.is_floating_point()]
        if not pairs or any(one.data_ptr() == w.data_ptr() for one, w in pairs):
            return False
        far = sum(float((one.to(w.device, w.dtype) - w).square().sum()) for one, w in pairs)
        return far <= NEAR**2 * sum(float(w.square().sum()) for _, w in pairs)
    return False


def number_all(modules: Sequence[torch.nn.Module], copies: Sequence[Copy], device: torch.device) -> Numbers:
    """A number of what is in each tensor."""
    found = {(id(module), name, one.dtype): one for module in modules for name, one in list_plain(module)}
    for copy in copies:
        for place, one in enumerate(list_tensors(copy.value)):
            if is_plain(one):
                found[id(copy.value), str(place), one.dtype] = one
    if not found:
        return {}
    numbers = (number_tensor(one).to(device) for one in found.values())
    return dict(zip(found, line_up(numbers, device).tolist(), strict=True))


# Sentences.


def name_owned(module: torch.nn.Module, name: str) -> str:
    """A tensor of a module, by the variable that holds the module or one around it."""
    around = [one for one in find_alive(is_module) if is_within(module, one)]
    names = name_objects([module, *around])
    owner = next((one for one in (module, *around) if id(one) in names), module)
    title = f"{names[id(owner)]} ({type(owner).__name__})" if id(owner) in names else f"a {type(owner).__name__}"
    path = next((path for path, one in owner.named_modules() if one is module), "")
    return f"{(f'{path}.{name}' if path else name)!r} of {title}, a module that run.prepare was not given,"


def is_within(module: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Whether a module is a part of another."""
    return other is not module and "_modules" in vars(other) and any(one is module for one in other.modules())


def refuse_weight(weight: LooseWeight) -> NoReturn:
    """Refuse weights beside a model's that turns hand on."""
    raise JobError(
        f"{weight.describe()} was changed inside `for ... in step:`, which runs once for every logical worker of a "
        "process: an average would be updated as often as a process has workers, otherwise on every number of "
        "processes. Change it after that loop, once per global step. A module that an optimizer of its own trains is "
        "to be given to run.prepare with that optimizer; what each worker has for itself belongs into "
        "step.worker.state, or is made anew in every turn"
    )


def tell_weight(weight: LooseWeight, warn: Callable[[str], None]) -> None:
    """Say that turns have changed weights beside a model's, which may be right."""
    warn(f"{weight.describe()} was changed inside `for ... in step:`; if a turn does not set it anew first, {ANEW}")


def refuse_buffer(module: torch.nn.Module, name: str) -> NoReturn:
    """Refuse a buffer that turns change."""
    is_trained = any(parameter.requires_grad for parameter in module.parameters())
    giving = "Give the module to run.prepare, which handles buffers as DDP does; or change" if is_trained else "Change"
    raise JobError(
        f"buffer {name_owned(module, name)} was changed inside `for ... in step:`: {ANEW}. {giving} it after that "
        "loop, by run.mean(...) of what the turns had, and name the module in run.keep(...); keep what is each "
        "worker's own in step.worker.state, or make the module anew in every turn"
    )
