"""What a script leaves on its models and optimizers between two steps, and whoever joins or resumes must have as well.

Gradients that the next step adds to (accumulation over steps), what was set on modules (`eval()`, a rate of dropout),
which parameters are frozen, and groups that optimizers were given in the loop.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from springtide.errors import CheckpointError
from springtide.training.parts import list_parameters
from springtide.training.workers.model_gradients import ModelGradients

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

#: What is set on each module, by its name.
Settings = dict[str, dict[str, bool | int | float | str]]
PLAIN = (bool, int, float, str)


def capture(run: "ElasticRun") -> dict[str, Any]:
    """All that was left, as plain values and the live tensors."""
    return {
        "gradients": dict(name_gradients(run)),
        "settings": find_changed(run.module_settings, read_settings(run.models)),
        "frozen": [name for name, one in name_parameters(run.models) if not one.requires_grad],
        "groups": name_groups(run),
    }


def adopt(run: "ElasticRun", left: dict[str, Any]) -> None:
    """Put it in its place, where the loop is entered."""
    put_settings(run.models, run.module_settings, left["settings"])
    for name, one in name_parameters(run.models):
        if one.requires_grad == (name in left["frozen"]):
            one.requires_grad_(not one.requires_grad)
    put_gradients(run, left["gradients"])


# Gradients.


def list_whole(run: "ElasticRun") -> list[ModelGradients]:
    """The gradients of models that are not sharded."""
    return [part for part in run.turns.gradients if isinstance(part, ModelGradients)]


def name_gradients(run: "ElasticRun") -> Iterator[tuple[str, torch.Tensor]]:
    """The gradients that the next step may add to; of a sharded model there are none, its turns refuse them."""
    stepped = {id(one) for optimizer in run.turns.stepped for one in list_parameters(optimizer)}
    for part in list_whole(run):
        for index, (name, one) in enumerate(zip(part.names, part.parameters, strict=True)):
            if one.grad is not None and (id(one) not in stepped or part.may_add_to(index)):
                yield name, one.grad


def put_gradients(run: "ElasticRun", saved: dict[str, torch.Tensor]) -> None:
    """Give parameters the gradients that were there; all others are cleared by the script before they are used."""
    for part in list_whole(run):
        for name, one in zip(part.names, part.parameters, strict=True):
            # in the parameter's own memory format: a norm over another adds in another order
            one.grad = torch.empty_like(one).copy_(saved[name]) if name in saved else None


# Modules.


def read_settings(models: Sequence[torch.nn.Module]) -> Settings:
    """The plain attributes of all modules: whether they train, rates, switches, counts."""
    return {
        name: {key: value for key, value in vars(module).items() if type(value) in PLAIN and not key.startswith("_")}
        for name, module in name_modules(models)
    }


def find_changed(before: Settings, now: Settings) -> Settings:
    """What was set since."""
    changed = {
        name: {key: value for key, value in found.items() if key not in before[name] or before[name][key] != value}
        for name, found in now.items()
        if name in before
    }
    return {name: found for name, found in changed.items() if found}


def put_settings(models: Sequence[torch.nn.Module], before: Settings, changed: Settings) -> None:
    """Give modules what they had in `prepare`, and on top of it what was set since in the run that was captured."""
    for name, module in name_modules(models):
        for key, value in (before.get(name, {}) | changed.get(name, {})).items():
            if vars(module).get(key) != value:
                vars(module)[key] = value


def name_modules(models: Sequence[torch.nn.Module]) -> Iterator[tuple[str, torch.nn.Module]]:
    """All modules, each with the number of its model."""
    return ((f"{number}.{name}", one) for number, model in enumerate(models) for name, one in model.named_modules())


def name_parameters(models: Sequence[torch.nn.Module]) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """All parameters, trained or not, each with the number of its model."""
    return ((f"{number}.{name}", one) for number, model in enumerate(models) for name, one in model.named_parameters())


# Groups of optimizers.


def name_groups(run: "ElasticRun") -> list[list[list[str]]]:
    """The parameters of every group of every optimizer, by name."""
    names = {id(one): name for name, one in name_parameters(run.models)}
    return [
        [[names.get(id(one), "") for one in group["params"]] for group in optimizer.param_groups]
        for optimizer in run.optimizers
    ]


def add_groups(run: "ElasticRun", optimizer: torch.optim.Optimizer, groups: Sequence[Iterable[str]]) -> None:
    """Give an optimizer the groups that the loop had added; their options come with its state."""
    known = dict(name_parameters(run.models))
    for names in groups[len(optimizer.param_groups) :]:
        missing = [name for name in names if name not in known]
        if missing:
            raise CheckpointError(
                f"{type(optimizer).__name__} was given a group of parameters in the loop that are not those of a "
                "prepared model; give their module to run.prepare"
            )
        optimizer.add_param_group({"params": [known[name] for name in names]})
