"""Everything a run is at a step boundary, as one tree: what checkpoints hold and joining processes receive.

One copy of parameters, optimizer, scheduler and gradient scaler; one context per logical worker; position, bucket
layout, user state.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from springtide.errors import CheckpointError
from springtide.training.group.groups import share_trees
from springtide.training.run import Position

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun


def capture(run: "ElasticRun", contexts: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """The run's state, with these contexts of all logical workers; tensors are the live ones, not copies."""
    return {
        "model": name_weights(run.model),
        "weights_file": describe_weights([run.model]),
        "buffers": run.contexts.buffers.agreed,
        "optimizers": [optimizer.state_dict() for optimizer in run.optimizers],
        "schedulers": [scheduler.state_dict() for scheduler in run.schedulers],
        "scalers": [scaler.state_dict() for scaler in run.scalers],
        "contexts": contexts,
        "layout": {"indices": run.turns.layout.indices, "rebuilt": run.turns.rebuilt},
        "position": [run.position.epoch, run.position.step_in_epoch, run.position.step],
        "user": dict(run.state),
    }


def share_contexts(run: "ElasticRun") -> dict[int, dict[str, Any]]:
    """The contexts of all logical workers, on every process of the present group."""
    mine = run.contexts.to_plain(run.local)
    if run.group is None:
        return mine
    merged: dict[int, dict[str, Any]] = {}
    for theirs in share_trees(run.group, mine, run.device):
        merged.update(theirs)
    return dict(sorted(merged.items()))


def name_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, each tensor once."""
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def describe_weights(models: Sequence[torch.nn.Module]) -> dict[str, Any]:
    """What makes a file of weights one that `load_state_dict` takes: names to be added to it, and to be left out.

    `aliases` are names of a tensor that has another name already (tied weights); `transient` are buffers that are not
    in a model's state dict.
    """
    titles = [""] if len(models) == 1 else [f"{number}." for number in range(len(models))]
    aliases: dict[str, str] = {}
    transient: list[str] = []
    for title, model in zip(titles, models, strict=True):
        first: dict[int, str] = {}
        kept = set(model.state_dict(keep_vars=True))
        for name, tensor in list_tensors(model):
            if first.setdefault(id(tensor), title + name) != title + name:
                aliases[title + name] = first[id(tensor)]
            elif name not in kept:
                transient.append(title + name)
    return {"aliases": aliases, "transient": transient}


def list_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers under all their names."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def adopt(run: "ElasticRun", state: dict[str, Any]) -> None:
    """Make a prepared run equal to a captured state."""
    check_shapes(run.model, state["model"])
    check_parts(run, state)
    with torch.no_grad():
        for name, tensor in name_weights(run.model).items():
            tensor.copy_(state["model"][name])
    run.contexts.buffers.agreed.copy_(state["buffers"])
    run.contexts.buffers.load()
    for optimizer, saved in zip(run.optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    for scheduler, saved in zip(run.schedulers, state["schedulers"], strict=True):
        scheduler.load_state_dict(saved)
    for scaler, saved in zip(run.scalers, state["scalers"], strict=True):
        scaler.load_state_dict(saved)
    run.contexts.from_plain(state["contexts"], run.local)
    run.position = Position(*state["position"])
    run.turns.adopt_layout(state["layout"]["indices"], state["layout"]["rebuilt"])
    run.state.clear()
    run.state.update(state["user"])


def check_parts(run: "ElasticRun", state: dict[str, Any]) -> None:
    """Refuse a state of other parts, which only other code or other arguments can have saved."""
    counts = {
        "optimizers": (len(run.optimizers), len(state["optimizers"])),
        "schedulers": (len(run.schedulers), len(state["schedulers"])),
        "scalers": (len(run.scalers), len(state["scalers"])),
        "trained parameters": (len(run.turns.parameters), sum(map(len, state["layout"]["indices"]))),
    }
    for part, (here, there) in counts.items():
        if here != there:
            raise CheckpointError(
                f"this run has {here} {part}, the saved one {there}; resume with those that were saved, or use another "
                "checkpoint folder"
            )


def check_shapes(model: torch.nn.Module, saved: dict[str, torch.Tensor]) -> None:
    """Refuse weights of another model, naming the first that differs."""
    present = name_weights(model)
    for name in sorted(present.keys() | saved.keys()):
        here = tuple(present[name].shape) if name in present else None
        there = tuple(saved[name].shape) if name in saved else None
        if here != there:
            raise CheckpointError(
                f"weight {name!r} is {here} in the model and {there} in the saved state; resume with the model that "
                "was saved, or use another checkpoint folder"
            )
