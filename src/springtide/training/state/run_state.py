"""Everything a run is at a step boundary, as one tree: what checkpoints hold and joining processes receive.

One copy of parameters, optimizers, schedulers, gradient scalers and what the user keeps; one context per logical
worker; the processes' common random state, position, bucket layouts, user state; what lies on models and optimizers
between two steps, and in objects of the script. Its variables are there to be compared, not to be brought back.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from springtide.errors import CheckpointError
from springtide.training.determinism import levels
from springtide.training.group.groups import share_trees
from springtide.training.parts import title_models
from springtide.training.positions import Position
from springtide.training.state import left_between_steps, optimizer_state, state_tree
from springtide.training.state.script import script_objects
from springtide.training.state.script.loop_variables import read_carried
from springtide.training.workers import randomness

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun


#: Parts of a state that are taken over as they are.
LOADED = ("optimizers", "schedulers", "scalers", "kept", "user", "contexts")


def capture(run: "ElasticRun", contexts: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """The run's state, with these contexts of all logical workers; tensors are the live ones, not copies.

    Of a sharded model every process must ask for it, and only rank 0 has the tensors, which are whole.
    """
    state = collect_state(run, contexts)
    return state if run.sharding is None else run.sharding.make_whole(state, keep=run.is_main)


def collect_state(run: "ElasticRun", contexts: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """The run's state as it is in this process."""
    return {
        "model": name_weights(run.models),
        "weights_file": describe_weights(run.models),
        "optimizers": [optimizer.state_dict() for optimizer in run.optimizers],
        "schedulers": [scheduler.state_dict() for scheduler in run.schedulers],
        "scalers": [scaler.state_dict() for scaler in run.scalers],
        "kept": {name: kept.state_dict() for name, kept in sorted(run.kept.items())},
        "contexts": contexts,
        "outside": randomness.to_plain(randomness.capture()),
        "layouts": [{"indices": part.layout.indices, "rebuilt": part.rebuilt} for part in run.turns.gradients],
        "position": [run.position.epoch, run.position.step_in_epoch, run.position.step],
        "user": dict(run.state),
        "variables": read_carried(),
        "objects": run.objects.capture(run),
        "left": left_between_steps.capture(run),
        "opening": None if run.loader.stream is None else run.loader.stream.opening,
        "plans": run.loader.plans.to_plain(),
        "kernels": levels.name_kernels(run.level, run.device),
        "placed": state_tree.find_placed(run.state),
    }


def share_contexts(run: "ElasticRun") -> dict[int, dict[str, Any]]:
    """The contexts of all logical workers, on every process of the present group."""
    for one in run.turns.buffers:
        one.follow_writes(run.local)
    mine = run.turns.contexts.to_plain(run.local)
    for worker, plain in mine.items():
        plain["buffers"] = [one.kept.get(worker) for one in run.turns.buffers]
    if run.group is None:
        return mine
    merged: dict[int, dict[str, Any]] = {}
    for theirs in share_trees(run.group, mine, run.device):
        merged.update(theirs)
    return dict(sorted(merged.items()))


def adopt_contexts(run: "ElasticRun", contexts: dict[int, dict[str, Any]]) -> None:
    """Take over this process's logical workers, and drop all others."""
    run.turns.contexts.from_plain(contexts, run.local, run.device)
    for number, one in enumerate(run.turns.buffers):
        kept = {worker: contexts[worker]["buffers"][number] for worker in run.local}
        one.kept = {worker: flat for worker, flat in kept.items() if flat is not None}


def name_weights(models: Sequence[torch.nn.Module]) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, each tensor once; with several models, each has its number before the name."""
    return {
        title + name: tensor.detach()
        for title, model in title_models(models)
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    }


def describe_weights(models: Sequence[torch.nn.Module]) -> dict[str, Any]:
    """What makes a file of weights one that `load_state_dict` takes: names to be added to it, and to be left out.

    `aliases` are names of a tensor that has another name already (tied weights); `transient` are buffers that are not
    in a model's state dict.
    """
    aliases: dict[str, str] = {}
    transient: list[str] = []
    for title, model in title_models(models):
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


def adopt(run: "ElasticRun", state: dict[str, Any], is_final: bool) -> None:
    """Make a prepared run equal to a captured state.

    Done twice: in `prepare`, so that the script reads what was saved, and where its loop is entered, so that lines in
    between, which have acted before the state was captured, do not act again. Only then are all parts known.
    """
    check_shapes(run.models, state["model"])
    check_parts(run, state, is_final)
    left = state.get("left")  # earlier versions saved none
    if not is_final:  # what is loaded may be changed before it is loaded again
        state = {**state, **copy.deepcopy({part: state[part] for part in LOADED})}
    with torch.no_grad():
        for name, tensor in name_weights(run.models).items():
            load_weight(run, tensor, state["model"][name])
    for one in run.turns.buffers:
        one.take(one.coming)  # else all that is loaded would count as written by the script
    for number, optimizer in enumerate(run.optimizers):
        if is_final:
            left_between_steps.add_groups(run, optimizer, left["groups"][number] if left is not None else ())
        load_optimizer(run, optimizer, state["optimizers"][number], is_final)
    for part in ("schedulers", "scalers"):
        for one, saved in zip(getattr(run, part), state[part], strict=False):
            one.load_state_dict(saved)
    for name, kept in run.kept.items():
        kept.load_state_dict(state["kept"][name])
    adopt_contexts(run, state["contexts"])
    run.position = Position(*state["position"])
    for gradients, layout in zip(run.turns.gradients, state["layouts"], strict=True):
        gradients.adopt_layout(layout["indices"], layout["rebuilt"])
    script_objects.adopt_user(run, state["user"], state.get("placed", ()), is_final)  # earlier versions saved no places
    if run.loader.stream is not None and state.get("opening") is not None:
        epoch, number = state["opening"]
        run.loader.stream.opening = epoch, number
    if "plans" in state:  # not in checkpoints of older versions
        run.loader.plans.from_plain(state["plans"])
    if is_final:
        if left is not None:
            left_between_steps.adopt(run, left)
        randomness.restore(randomness.from_plain(state["outside"]))


def load_optimizer(run: "ElasticRun", optimizer: torch.optim.Optimizer, saved: dict[str, Any], is_final: bool) -> None:
    """Give an optimizer its saved state."""
    here, there = len(optimizer.param_groups), len(saved["param_groups"])
    if here < there and not is_final:
        return  # lines before the loop may add the others; those that the loop had added are added where it is entered
    if here != there:
        raise CheckpointError(
            f"{type(optimizer).__name__} has {here} groups of parameters here and {there} in the saved state; resume "
            "with those that were saved, or use another checkpoint folder"
        )
    optimizer_state.load(optimizer, saved if run.sharding is None else run.sharding.cut_state(optimizer, saved))


def load_weight(run: "ElasticRun", tensor: torch.Tensor, saved: torch.Tensor) -> None:
    """Give a weight its saved value."""
    if run.sharding is None:
        tensor.copy_(saved)
    else:
        run.sharding.load_weight(tensor, saved)


def check_parts(run: "ElasticRun", state: dict[str, Any], is_final: bool) -> None:
    """Refuse a state of other parts, which only other code or other arguments can have saved."""
    trained = [sum(map(len, layout["indices"])) for layout in state["layouts"]]
    counts: dict[str, tuple[Any, Any]] = {
        "optimizers": (len(run.optimizers), len(state["optimizers"])),
        "trained parameters": (sum(len(part.parameters) for part in run.turns.gradients), sum(trained)),
    }
    if is_final:
        counts["schedulers"] = len(run.schedulers), len(state["schedulers"])
        counts["scalers"] = len(run.scalers), len(state["scalers"])
        counts["kept objects"] = sorted(run.kept), sorted(state["kept"])
    for part, (here, there) in counts.items():
        if here != there:
            raise CheckpointError(
                f"this run has {here} {part}, the saved one {there}; resume with those that were saved, or use another "
                "checkpoint folder"
            )


def check_shapes(models: Sequence[torch.nn.Module], saved: dict[str, torch.Tensor]) -> None:
    """Refuse weights of another model, naming the first that differs."""
    present = name_weights(models)
    for name in sorted(present.keys() | saved.keys()):
        here = tuple(present[name].shape) if name in present else None
        there = tuple(saved[name].shape) if name in saved else None
        if here != there:
            raise CheckpointError(
                f"weight {name!r} is {here} in the model and {there} in the saved state; resume with the model that "
                "was saved, or use another checkpoint folder"
            )
