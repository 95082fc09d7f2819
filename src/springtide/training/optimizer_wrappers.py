"""Optimizers that hold another one (Lookahead, SAM): the inner one belongs to them, if their state_dict has it all.

A resume and a joining process have what `state_dict` says, and nothing else. The usual wrappers pass the inner one's on
and keep slow weights and a counter in attributes of their own, which a kill would then lose without a word.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any

import torch

from springtide.errors import JobError
from springtide.training.state.script.loop_code import read_code

Optimizer = torch.optim.Optimizer
#: What an optimizer has by itself, and what of a wrapper's is often the inner one's.
COMMON = ("state", "param_groups")
#: Functions that set what a step does not change.
SETTING = ("__init__", "__setstate__", "state_dict", "load_state_dict")
#: Under this name a piece of state is put into an inner optimizer, to see who saves it.
TRIAL = "springtide trial"


def find_inner_optimizers(optimizer: Optimizer) -> dict[str, Optimizer]:
    """The optimizers that one holds, by the attribute."""
    return {name: one for name, one in vars(optimizer).items() if isinstance(one, Optimizer) and one is not optimizer}


def list_known(given: Iterable[Optimizer]) -> list[Optimizer]:
    """Optimizers of which a resume knows: those that were given, and those inside of them."""
    return [each for one in given for each in (one, *find_inner_optimizers(one).values())]


def check_wrappers(given: Sequence[Optimizer]) -> None:
    """Refuse an optimizer around another one whose state_dict leaves out what it remembers."""
    for optimizer in given:
        for name, inner in find_inner_optimizers(optimizer).items():
            is_given = any(inner is one for one in given)
            forgotten = [*([] if is_given or saves_inner(optimizer, inner) else [name]), *find_forgotten(optimizer)]
            if forgotten:
                refuse_forgetful(optimizer, name, inner, forgotten)
            check_common(optimizer, name, inner)


def saves_inner(optimizer: Optimizer, inner: Optimizer) -> bool:
    """Whether the state_dict of an optimizer has the state of one inside it."""
    parameter = next(one for group in inner.param_groups for one in group["params"])
    was_there = parameter in inner.state
    trial = torch.tensor(0.5)
    inner.state[parameter][TRIAL] = trial
    try:
        return any(one is trial for one in list_leaves(optimizer.state_dict()))
    finally:
        del inner.state[parameter][TRIAL]
        if not was_there:
            del inner.state[parameter]


def find_forgotten(optimizer: Optimizer) -> Iterator[str]:
    """The attributes in which an optimizer keeps tensors, or numbers that its steps change, and does not save them."""
    changed = find_changed(type(optimizer))
    for name, value in list(vars(optimizer).items()):
        if name in COMMON or isinstance(value, Optimizer):
            continue
        if type(value) in (int, float):
            if name in changed and not saves_number(optimizer, name):
                yield name
        elif not saves_tensors(optimizer, value):
            yield name


def find_changed(kind: type) -> set[str]:
    """The attributes that functions of a class set, but for those that begin or load."""
    classes = kind.__mro__[: kind.__mro__.index(Optimizer)]
    functions = [one for each in classes for name, one in vars(each).items() if name not in SETTING]
    codes = [one.__code__ for one in functions if isinstance(one, FunctionType) and one.__code__.co_argcount]
    written = {(code.co_varnames[0], name) for code in codes for name in read_code(code).list_written()}
    return {name.partition(".")[2] for owner, name in written if name.startswith(f"{owner}.")}


def saves_number(optimizer: Optimizer, name: str) -> bool:
    """Whether a state_dict is another one when a number of the optimizer is."""
    value, before = vars(optimizer)[name], list_numbers(optimizer)
    vars(optimizer)[name] = value + 1
    try:
        return list_numbers(optimizer) != before
    finally:
        vars(optimizer)[name] = value


def list_numbers(optimizer: Optimizer) -> list[str]:
    """All that is no tensor in a state_dict, in words; a number may be saved as a tensor, too."""
    leaves = list_leaves(optimizer.state_dict())
    return [repr(one) for one in leaves if not isinstance(one, torch.Tensor) or one.numel() == 1]


def saves_tensors(optimizer: Optimizer, value: Any) -> bool:
    """Whether the tensors of an attribute, but for trained ones, are in the state_dict, or copies of them."""
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    kept = [one for one in list_leaves(value) if isinstance(one, torch.Tensor) and id(one) not in trained]
    saved = [one for one in list_leaves(optimizer.state_dict()) if isinstance(one, torch.Tensor)] if kept else []
    return all(any(one is each or is_equal(one, each) for each in saved) for one in kept)


def is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same in them."""
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other.to(one.device))


def list_leaves(value: Any) -> Iterator[Any]:
    """What is in containers, and in those inside of them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from list_leaves(item)
    else:
        yield value


def check_common(optimizer: Optimizer, name: str, inner: Optimizer) -> None:
    """Refuse a wrapper that no longer has the state and the groups of its inner optimizer once it was loaded."""
    shared = [each for each in COMMON if getattr(optimizer, each, None) is getattr(inner, each)]
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    parted = [each for each in shared if getattr(optimizer, each) is not getattr(inner, each)]
    if parted:
        lines = "; ".join(f"self.{each} = self.{name}.{each}" for each in parted)
        raise JobError(
            f"{type(optimizer).__name__} shares {' and '.join(parted)} with the optimizer that it holds as {name!r} "
            f"({type(inner).__name__}), but not once load_state_dict was called, as every resume does: rates and state "
            f"would part. Write at the end of its load_state_dict: {lines}"
        )


def refuse_forgetful(optimizer: Optimizer, name: str, inner: Optimizer, forgotten: list[str]) -> None:
    """Refuse a wrapper that would lose something."""
    giving = f", or give {name!r} to run.prepare as well" if name in forgotten else ""
    raise JobError(
        f"{type(optimizer).__name__} holds another optimizer as {name!r} ({type(inner).__name__}), and its state_dict "
        f"leaves out what it remembers: {', '.join(map(repr, forgotten))}. A resume and a joining process would begin "
        f"that anew; put it into the state_dict of {type(optimizer).__name__} and take it from there in "
        f"load_state_dict{giving}"
    )
