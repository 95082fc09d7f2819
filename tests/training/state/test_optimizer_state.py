"""An optimizer's state comes back in the types that were saved, and in the groups that the script has."""

import copy
from typing import Any

import torch
from torch import nn

from springtide.training.state import optimizer_state


class Masters(torch.optim.Optimizer):
    """Keeps more than a weight's type can hold."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})
        for one in self.param_groups[0]["params"]:
            master, mask = torch.full_like(one, 1 / 3, dtype=torch.float32), torch.ones_like(one, dtype=torch.bool)
            self.state[one] |= {"master": master, "nested": {"mask": mask}, "pair": (master.clone(), 1)}


def test_state_has_the_types_that_were_saved() -> None:
    saved = copy.deepcopy(Masters(nn.Linear(2, 2, dtype=torch.bfloat16).parameters()).state_dict())
    here = Masters(nn.Linear(2, 2, dtype=torch.bfloat16).parameters())
    optimizer_state.load(here, saved)
    state = here.state[here.param_groups[0]["params"][0]]
    third = torch.full((2, 2), 1 / 3)
    assert torch.equal(state["master"], third) and torch.equal(state["pair"][0], third)
    assert state["nested"]["mask"].dtype is torch.bool
    assert state["master"] is not saved["state"][0]["master"]


def test_groups_are_those_that_the_script_has() -> None:
    groups: list[dict[str, Any]] = [{"params": list(nn.Linear(2, 2).parameters()), "lr": 0.5}]
    here = torch.optim.SGD(groups, lr=0.1)
    saved = copy.deepcopy(here.state_dict())
    saved["param_groups"][0]["lr"] = 0.25
    held = here.param_groups
    optimizer_state.load(here, saved)
    assert groups[0]["lr"] == 0.25 and here.param_groups[0] is groups[0] is held[0]
