"""What a script gives to `prepare`, by what it is, and what it forgot to give.

A resume brings back what the run knows of. So a scheduler or a gradient scaler that was not given is found and taken
in, and what cannot be taken in without a doubt is refused before the first step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from springtide.errors import JobError
from springtide.training.living_objects import find_alive, is_schedule
from springtide.training.optimizer_wrappers import check_wrappers, list_known

WRAPPERS = (DistributedDataParallel, torch.nn.DataParallel)


@dataclass(frozen=True, slots=True)
class Parts:
    """What `prepare` was given, by what it is."""

    models: list[torch.nn.Module]
    optimizers: list[torch.optim.Optimizer]
    schedulers: list[Any]
    scalers: list[torch.amp.GradScaler]
    #: A dataset or a finished DataLoader.
    data: Any


def sort_parts(parts: Iterable[Any]) -> Parts:
    """The arguments of `prepare` by what they are: models, optimizers, and one dataset or loader."""
    by_type: dict[str, list[Any]] = {"model": [], "optimizer": [], "scheduler": [], "scaler": [], "dataset": []}
    for part in parts:
        by_type[find_part_type(part)].append(part)
    if len(by_type["dataset"]) != 1:
        kinds = ", ".join(type(part).__name__ for part in by_type["dataset"]) or "none"
        raise JobError(f"run.prepare takes exactly one DataLoader or dataset to train on; it was given {kinds}")
    if not by_type["model"]:
        raise JobError("run.prepare was given no model; give the one that is trained")
    if not by_type["optimizer"]:
        raise JobError(
            "run.prepare was given no optimizer; give the one that trains the model. A script that changes weights by "
            "hand gives one that it never steps: torch.optim.SGD(model.parameters(), lr=0.1)"
        )
    (data,) = by_type["dataset"]
    refuse_strange_loader(data)
    found = Parts(by_type["model"], by_type["optimizer"], by_type["scheduler"], by_type["scaler"], data)
    refuse_wrapped(found.models)
    refuse_lazy(found.models)
    for number, optimizer in enumerate(found.optimizers):
        check_optimizer(number, optimizer, found.models)
    check_wrappers(found.optimizers)
    return found


def find_part_type(part: Any) -> str:
    """What an argument of `prepare` is."""
    if isinstance(part, torch.nn.Module):
        return "model"
    if isinstance(part, torch.optim.Optimizer):
        return "optimizer"
    if isinstance(part, torch.amp.GradScaler):
        return "scaler"
    if isinstance(part, LRScheduler) or is_scheduler_like(part):
        return "scheduler"
    return "dataset"


def is_scheduler_like(part: Any) -> bool:
    """Whether an object steps an optimizer's schedule without being torch's, as timm's schedulers do."""
    has_state = hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
    return has_state and hasattr(part, "step") and isinstance(getattr(part, "optimizer", None), torch.optim.Optimizer)


def refuse_wrapped(models: Sequence[torch.nn.Module]) -> None:
    """Refuse a model that already reduces its gradients."""
    for model in models:
        if isinstance(model, WRAPPERS):
            raise JobError(
                f"run.prepare was given a {type(model).__name__}, which reduces gradients itself, between processes "
                "and not between logical workers; give the model inside it (model.module)"
            )


def refuse_lazy(models: Sequence[torch.nn.Module]) -> None:
    """Refuse a model whose first batch decides what it has to train."""
    for name, parameter in (pair for model in models for pair in model.named_parameters()):
        if is_lazy(parameter):
            raise JobError(
                f"parameter {name} has no shape yet, as in a lazy layer before its first batch; call the model once on "
                "a batch before the optimizer is built and run.prepare is called"
            )


def refuse_foreign(models: Iterable[torch.nn.Module], ours: Iterable[torch.nn.Module]) -> None:
    """Refuse a model that torch's own `fully_shard` has sharded; it is told by name, for the import takes a while."""
    known = {id(module) for module in ours}
    for module in (each for model in models for each in model.modules()):
        if id(module) not in known and any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
            raise JobError(
                f"run.prepare was given a {type(module).__name__} of torch's fully_shard, which shards over processes "
                "and not for logical workers; write run.fully_shard(module) instead"
            )


def refuse_strange_loader(data: Any) -> None:
    """Refuse a loader of another library, which would hand out batches of its own to whoever asks."""
    walks = hasattr(data, "__iter__") and hasattr(data, "dataset") and not hasattr(data, "__getitem__")
    if walks and not isinstance(data, DataLoader):
        raise JobError(
            f"{type(data).__name__} is a loader that is not torch's DataLoader, so nothing is known of how its batches "
            "are split between logical workers and resumed; give run.prepare its dataset in a "
            "torch.utils.data.DataLoader, which is resumed at any step without state of its own"
        )


def list_parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """All that an optimizer trains."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def check_optimizer(number: int, optimizer: torch.optim.Optimizer, models: Sequence[torch.nn.Module]) -> None:
    """Refuse an optimizer over parameters that nobody would reduce."""
    known = {id(parameter) for model in models for parameter in model.parameters()}
    strange = [parameter for parameter in list_parameters(optimizer) if id(parameter) not in known]
    if strange:
        raise JobError(
            f"optimizer {number} ({type(optimizer).__name__}) trains {len(strange)} parameters that are in no model "
            f"given to run.prepare, the first of shape {tuple(strange[0].shape)}: their gradients would not be "
            "reduced. Give the module that has them as well; prepare takes several"
        )


def title_models(models: Sequence[torch.nn.Module]) -> list[tuple[str, torch.nn.Module]]:
    """Each model with what stands before the names of its weights: nothing, or its number where there are several."""
    return [("" if len(models) == 1 else f"{number}.", model) for number, model in enumerate(models)]


# What was not given.


@dataclass(frozen=True, slots=True)
class Strays:
    """Schedulers and scalers that act on a run's optimizers and were not given to `prepare`, in a fixed order."""

    schedulers: list[Any]
    scalers: list[torch.amp.GradScaler]


def find_strays(
    optimizers: Sequence[torch.optim.Optimizer], schedulers: Sequence[Any], scalers: Sequence[Any]
) -> Strays:
    """What was not given and can be taken in; what leaves a doubt about which is which is refused."""
    alive = find_alive(is_schedule)
    refuse_stray_optimizers(optimizers, [one for one in alive if isinstance(one, torch.optim.Optimizer)])
    known = {id(one) for one in (*schedulers, *find_inner(schedulers))}
    places = {id(optimizer): number for number, optimizer in enumerate(optimizers)}
    loose = [
        one
        for one in alive
        if not isinstance(one, torch.optim.Optimizer | type)
        and id(vars(one).get("optimizer") if hasattr(one, "__dict__") else None) in places
        and id(one) not in known
    ]
    inner = {id(one) for one in find_inner(loose)}
    loose = sorted((one for one in loose if id(one) not in inner), key=lambda one: places[id(one.optimizer)])
    for before, after in pairwise(loose):
        if before.optimizer is after.optimizer:
            raise JobError(
                f"{type(before).__name__} and {type(after).__name__} both schedule an optimizer of the run and were "
                "not given to run.prepare; give them, so that a resume knows which is which"
            )
    return Strays(loose, find_stray_scalers(scalers, [one for one in alive if isinstance(one, torch.amp.GradScaler)]))


def find_inner(schedulers: Iterable[Any]) -> list[Any]:
    """Schedulers inside others (SequentialLR, ChainedScheduler), whose state is part of theirs."""
    inner = [one for scheduler in schedulers for one in getattr(scheduler, "_schedulers", ())]
    return [*inner, *find_inner(inner)] if inner else []


def find_stray_scalers(scalers: Sequence[Any], alive: Iterable[torch.amp.GradScaler]) -> list[torch.amp.GradScaler]:
    """A gradient scaler in use that was not given; with several there would be no telling which is which."""
    known = {id(scaler) for scaler in scalers}
    loose = [one for one in alive if id(one) not in known and one.is_enabled()]
    if len(loose) > 1:
        raise JobError(
            f"{len(loose)} GradScalers were not given to run.prepare; give them, so that a resume knows them"
        )
    return loose


def refuse_stray_optimizers(given: Sequence[torch.optim.Optimizer], alive: Iterable[Any]) -> None:
    """Refuse an optimizer over parameters of the run that was not given: a resume would lose its state."""
    known = {id(optimizer) for optimizer in list_known(given)}
    # What stands around a given one and has no state of its own, as a framework's wrapper, is known by it.
    alive = [one for one in alive if not any(id(part) in known for part in vars(one).values())]
    trained = {id(parameter) for optimizer in given for parameter in list_parameters(optimizer)}
    for one in alive:
        if id(one) not in known and any(id(parameter) in trained for parameter in list_parameters(one)):
            refuse_stray_optimizer(one)


def refuse_stray_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Refuse one that was not given."""
    raise JobError(
        f"an optimizer ({type(optimizer).__name__}) over parameters of the model was not given to run.prepare, so a "
        "resume would lose its state; give it as well, or delete it"
    )
