"""Gives an optimizer its saved state as it was saved: in the same types, and in the groups that the script may hold.

torch's own loading casts state to the type of the parameter, so that a float32 copy of a bfloat16 weight is rounded and
a mask becomes a float, and it makes new groups, so that a rate which the script sets in those it has given is nobody's.
"""

from typing import Any

import torch


def load(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load a state into an optimizer."""
    groups = list(optimizer.param_groups)
    optimizer.load_state_dict(saved)
    keep_groups(optimizer, groups)
    keep_types(optimizer, saved)


def keep_groups(optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> None:
    """Let an optimizer go on with the groups that it had, and with what is in those it has now."""
    if len(groups) != len(optimizer.param_groups):
        return
    for before, now in zip(groups, optimizer.param_groups, strict=True):
        if before is not now:
            before.clear()
            before.update(now)
    optimizer.param_groups[:] = groups  # not another list, which a wrapper may share


def keep_types(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Give the state of each parameter the types that were saved."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    places = [place for group in saved["param_groups"] for place in group["params"]]
    states = saved.get("state", {})
    for place, parameter in zip(places, parameters, strict=False):
        if place in states and parameter in optimizer.state:
            optimizer.state[parameter] = with_types(optimizer.state[parameter], states[place])


def with_types(here: Any, saved: Any) -> Any:
    """What was loaded, with the tensors that were saved where they are of another type."""
    if isinstance(here, torch.Tensor) and isinstance(saved, torch.Tensor):
        is_cast = here.dtype != saved.dtype and here.shape == saved.shape
        return saved.detach().to(here.device, copy=True) if is_cast else here
    if isinstance(here, dict) and isinstance(saved, dict):
        here.update({key: with_types(item, saved[key]) for key, item in here.items() if key in saved})
    elif isinstance(here, list | tuple) and isinstance(saved, list | tuple) and len(here) == len(saved):
        items = [with_types(item, each) for item, each in zip(here, saved, strict=True)]
        if any(item is not each for item, each in zip(items, here, strict=True)):
            return type(here)(items)
    return here
