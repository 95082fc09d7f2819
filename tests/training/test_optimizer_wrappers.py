"""Optimizers around another one: accepted if their state_dict has all that they remember."""

from typing import Any

import pytest
import torch
from torch import nn

from springtide.errors import JobError
from springtide.training.optimizer_wrappers import check_wrappers
from springtide.training.parts import find_strays


class Lookahead(torch.optim.Optimizer):
    """As it is copied from script to script: the state_dict of the inner optimizer, and nothing else."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        self.base, self.k = base, 3
        self.param_groups, self.defaults, self.state = base.param_groups, base.defaults, base.state
        self.slow = [[p.detach().clone() for p in group["params"]] for group in self.param_groups]
        self.counter = 0

    def step(self, closure: Any = None) -> Any:
        self.base.step(closure)
        self.counter += 1

    def state_dict(self) -> dict[str, Any]:
        return self.base.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.base.load_state_dict(state)


class Whole(Lookahead):
    """With all of it, but for what is the inner one's too."""

    def state_dict(self) -> dict[str, Any]:
        return {"base": self.base.state_dict(), "slow": self.slow, "counter": self.counter}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.base.load_state_dict(state["base"])
        self.slow, self.counter = state["slow"], state["counter"]


class Right(Whole):
    """As it should be."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.param_groups, self.state = self.base.param_groups, self.base.state


class Sharpness(torch.optim.Optimizer):
    """SAM as it is published: the inner optimizer's state is in nobody's state_dict."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"rho": 0.05})
        self.base_optimizer = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)
        self.param_groups = self.base_optimizer.param_groups

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.base_optimizer.param_groups = self.param_groups


def make_inner() -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1, momentum=0.9)


@pytest.mark.parametrize("inner_too", [False, True])
def test_what_a_wrapper_would_lose_is_named(inner_too: bool) -> None:
    wrapper = Lookahead(make_inner())
    with pytest.raises(JobError, match=r"holds another optimizer as 'base' \(SGD\).*leaves out.*: 'slow', 'counter'\."):
        check_wrappers([wrapper, wrapper.base] if inner_too else [wrapper])


def test_a_wrapper_that_parts_from_its_inner_one_is_refused() -> None:
    with pytest.raises(JobError, match=r"self\.state = self\.base\.state; self\.param_groups = self\.base"):
        check_wrappers([Whole(make_inner())])


def test_a_wrapper_that_saves_it_all_is_accepted_with_its_inner_one() -> None:
    wrapper = Right(make_inner())
    check_wrappers([wrapper])
    assert find_strays([wrapper], [], []).schedulers == []
    assert wrapper.counter == 0 and not wrapper.base.state


def test_an_inner_optimizer_that_nobody_saves_is_to_be_given() -> None:
    wrapper = Sharpness(nn.Linear(2, 2).parameters())
    with pytest.raises(JobError, match=r"'base_optimizer'.*or give 'base_optimizer' to run.prepare as well"):
        check_wrappers([wrapper])
    check_wrappers([wrapper, wrapper.base_optimizer])
