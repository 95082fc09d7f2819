"""Which numbers that turns count reach a backward, over the ways that loops have; and which are only shown."""

import dis
import functools
import sys
import time
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import nn

from springtide.training.state.script.flow_values import Names
from springtide.training.state.script.loop_code import find_loop
from springtide.training.state.script.trained_variables import find_counted, find_trained

WITH_I = "(x * weight).sum() * i"
LOSS = "(x * weight).sum()"


class Tempered(nn.Module):
    """A model that reads one of its attributes where it is called, and has methods that set them."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature, self.shown = 1.0, 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / self.temperature

    def set_temperature(self, value: float) -> None:
        self.temperature = value

    def show(self, value: float) -> None:
        self.shown = value

    def training_step(self, x: torch.Tensor, i: int) -> torch.Tensor:
        self.show(i)
        return torch.sum(self(x))

    @staticmethod
    def divide(x: torch.Tensor, by: float, shown: int) -> torch.Tensor:
        str(shown)
        return x / by

    def weigh(self, x: torch.Tensor, i: int) -> torch.Tensor:
        return torch.sum(self(x)) * i


class Meter:
    """What scripts average shown values with."""

    def update(self, value: float, count: int) -> None:
        self.mean = value / count


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@timed
def show_step(x: torch.Tensor, weight: torch.Tensor, i: int) -> torch.Tensor:
    str(i)
    return (x * weight).sum()


@timed
def weigh_step(x: torch.Tensor, weight: torch.Tensor, i: int) -> torch.Tensor:
    return (x * weight).sum() * i


def leave_a_tuple(x: torch.Tensor, weight: torch.Tensor, i: int) -> tuple[torch.Tensor, int]:
    out = ((x * weight).sum(), i)
    return out


def leave_more(x: torch.Tensor, weight: torch.Tensor, i: int) -> dict[str, Any]:
    return {"loss": (x * weight).sum(), **{"n": i}}


def leave_after(x: torch.Tensor, weight: torch.Tensor, i: int) -> tuple[int, torch.Tensor]:
    return 1, (x * weight).sum() * i


def leave_before(x: torch.Tensor, weight: torch.Tensor, i: int) -> tuple[int, torch.Tensor]:
    return i, (x * weight).sum()


def leave_named(x: torch.Tensor, weight: torch.Tensor, i: int) -> dict[str, Any]:
    out: dict[str, Any] = {"objective": (x * weight).sum()}
    out["iteration"] = i
    return out


def weight_at(i: int) -> float:
    if i < 100:
        return 0.0
    return 1.0


def warm() -> float:
    return 2.0


def yield_parts(x: torch.Tensor, i: int) -> Iterator[torch.Tensor]:
    yield x * i


class Options:
    """What the functions of a file read."""

    rate = 1.0


options = Options()


def take_options(x: torch.Tensor, weight: torch.Tensor, shown: int = 0, scale: float = 1.0) -> torch.Tensor:
    str(shown)
    return (x * weight).sum() * scale


def read_an_item(weight: torch.Tensor, batch: dict[str, Any]) -> Any:
    return (batch["x"] * weight).sum()


def read_all(weight: torch.Tensor, batch: dict[str, Any]) -> Any:
    return sum(batch.values()).sum() * weight.sum()


def fill(batch: dict[str, Any]) -> dict[str, Any]:
    batch["n"] = 1
    return batch


KNOWN: dict[str, Any] = {
    "fill": fill,
    "rate": 1.0,
    "k": 1.0,
    "kept": {"rate": 1.0},
    "module": sys.modules[__name__],
    "nn": nn,
    "functools": functools,
    "Tempered": Tempered,
    "Meter": Meter,
    "show_step": show_step,
    "weigh_step": weigh_step,
    "leave_a_tuple": leave_a_tuple,
    "leave_more": leave_more,
    "leave_after": leave_after,
    "take_options": take_options,
    "leave_before": leave_before,
    "leave_named": leave_named,
    "yield_parts": yield_parts,
    "weight_at": weight_at,
    "warm": warm,
    "read_an_item": read_an_item,
    "read_all": read_all,
}

#: Turns whose gradients depend on `i`, by what they do; and those that only show it.
REACHING = {
    "appended": f"losses = []\nlosses.append({WITH_I})\nsum(losses).backward()",
    "stacked": f"losses = []\nlosses.append({WITH_I})\ntorch.stack(losses).mean().backward()",
    "extended": f"losses = [{LOSS}]\nlosses.extend([{WITH_I}])\nsum(losses).backward()",
    "updated": f"d = {{}}\nd.update(loss={WITH_I})\nd['loss'].backward()",
    "an item by a variable": f"d, k = {{}}, 'loss'\nd[k] = {WITH_I}\nd['loss'].backward()",
    "a list in a dictionary": f"d = {{'a': []}}\nd['a'].append({WITH_I})\nsum(d['a']).backward()",
    "added in place": "x.add_(i * 0.1)\n(x * weight).sum().backward()",
    "multiplied in place": f"loss = {LOSS}\nloss.mul_(i)\nloss.backward()",
    "in place in its data": "x.data.mul_(i)\n(x * weight).sum().backward()",
    "a part by an index": "x[:i] = 0\n(x * weight).sum().backward()",
    "set for the next turn": f"({LOSS} * rate).backward()\nrate = 1 / i",
    "set for a function's next turn": "(look_up(x) * weight).sum().backward()\nscale = 1 / i",
    "set for the next backward": f"for one in (1, 2):\n    d = {LOSS} / k\n    d.backward()\n    k = i",
    "an item for the next turn": f"({LOSS} * kept['rate']).backward()\nkept['rate'] = 1 / i",
    "a part of several dimensions": "x[..., :i] = 0\n(x * weight).sum().backward()",
    "a place of a tensor": "x[0] = i\n(x * weight).sum().backward()",
    "an attribute of a model": "model.temperature = 1 / (1 + i)\n(model(x) * weight).sum().backward()",
    "a setter of a model": "model.set_temperature(1 / (1 + i))\n(model(x) * weight).sum().backward()",
    "backwards in a list": f"losses = [{WITH_I}]\n[one.backward() for one in losses]",
    "weights in a list": "sum([(x * one).sum() * i for one in [weight]]).backward()",
    "as often as counted": "for _ in range(i):\n    x = x + 1\n(x * weight).sum().backward()",
    "after a loop": f"for one in (1, 2):\n    str(one)\n({WITH_I}).backward()",
    "after a loop in which nothing is": f"for one in (1, 2):\n    pass\nloss = {WITH_I}\nloss.backward()",
    "a dictionary as a whole": "batch = {'x': x, 'n': i}\nread_all(weight, batch).backward()",
    "an item of a dictionary": "batch = {'x': x * i, 'n': 1}\nread_an_item(weight, batch).backward()",
    "a decorated function": "weigh_step(x, weight, i).backward()",
    "a part of a function": "step = functools.partial(weigh_step, x)\nstep(weight, i).backward()",
    "the first of two": f"out = ({WITH_I}, 1)\nloss, n = out\nloss.backward()",
    "the last of two": f"out = (1, {WITH_I})\nout[-1].backward()",
    "a function of a module": "module.weigh_step(x, weight, i).backward()",
    "a dictionary that is given and filled": "fill({'x': x * i * weight})['x'].sum().backward()",
    "a tuple by its place": f"out = (1, {WITH_I})\nout[1].backward()",
    "what a function returns as the second": "n, loss = leave_after(x, weight, i)\nloss.backward()",
    "what a generator gives": "sum(yield_parts(x * weight, i)).sum().backward()",
    "a call of dict": f"d = dict(n=1, loss={WITH_I})\nd['loss'].backward()",
    "an argument by its name": "take_options(x, weight, scale=i).backward()",
    "arguments in another order": "take_options(weight=weight, x=x, scale=i, shown=1).backward()",
    "a method of a model": "(model.weigh(x, i) * weight).sum().backward()",
    "a static method of a model": "(model.divide(x, i, 0) * weight).sum().backward()",
    "a function that returns constants": f"({LOSS} * weight_at(i)).backward()",
    "a function that is called if": f"w = 1.0\nif i > 50:\n    w = warm()\n({LOSS} * w).backward()",
}
SHOWN = {
    "appended as shown": f"losses = []\nloss = {LOSS}\nloss.backward()\nlosses.append(loss.item() / i)",
    "beside the loss": f"d = {{'loss': 0, 'seen': []}}\nd['loss'] = {LOSS}\nd['seen'].append(i)\nd['loss'].backward()",
    "a meter": f"loss = {LOSS}\nmeter.update(loss.item(), i)\nloss.backward()",
    "a word for a bar": f"loss = {LOSS}\npbar.set_postfix(loss=loss.item() / i)\nloss.backward()",
    "a name that is used again": f"loss = {LOSS}\nloss.backward()\nloss = loss.item() / i",
    "an item set after the backward": f"d = {{}}\nd['a'] = {LOSS}\nsum(d.values()).backward()\nd['n'] = i",
    "printed in a loop": f"for one in range(i):\n    str(one)\n{LOSS}.backward()",
    "what a model only shows": "model.shown = i\n(model(x) * weight).sum().backward()",
    "a method that only shows": "model.show(i)\n(model(x) * weight).sum().backward()",
    "beside the batch": "batch = {'x': x, 'n': i}\n(batch['x'] * weight).sum().backward()",
    "beside it, for a function": "batch = {'x': x, 'n': i}\nread_an_item(weight, batch).backward()",
    "beside it, set later": "batch = {'x': x}\nbatch['n'] = i\n(batch['x'] * weight).sum().backward()",
    "beside it, by two": f"batch = {{'loss': {LOSS}, **{{'n': i}}}}\nbatch['loss'].backward()",
    "beside it, for a decorated function": "show_step(x, weight, i).backward()",
    "the second of a variable": "loss = leave_a_tuple(x, weight, i)[0]\nloss.backward()",
    "more beside a loss": "leave_more(x, weight, i)['loss'].backward()",
    "shown by a function of a module": "module.show_step(x, weight, i).backward()",
    "the second of two": f"out = ({LOSS}, i)\nloss, n = out\nloss.backward()",
    "what a function returns as the first": "n, loss = leave_before(x, weight, i)\nloss.backward()",
    "beside it, whatever it is called": "leave_named(x, weight, i)['objective'].backward()",
    "beside it in a call of dict": f"d = dict(loss={LOSS}, n=i)\nd['loss'].backward()",
    "shown by its name": "take_options(x, weight, scale=1.0, shown=i).backward()",
    "the same in a variable": "out = leave_named(x, weight, i)\nout['objective'].backward()",
    "shown by a static method of a model": "(model.divide(x, 2.0, i) * weight).sum().backward()",
    "logged by a method of a model": "(model.training_step(x, i) * weight).sum().backward()",
}


class Bar:
    """What shows progress."""

    def set_postfix(self, **shown: float) -> None:
        pass


def find_counted_in(text: str, **names: Any) -> Names:
    """What gradients are found to depend on, of what is counted, in a script that walks `look()`."""
    found: list[Names] = []

    def look() -> Iterator[torch.Tensor]:
        yield torch.ones(4)
        frame = sys._getframe(1)
        found.append(find_counted(frame, find_trained(frame)))

    exec(text, {"look": look, "torch": torch, "__name__": __name__, **names})
    (counted,) = found
    return counted


def is_counted(turn: str, at_top: bool = False) -> bool:
    """Whether gradients of such a turn are found to depend on `i`, which the loop counts."""
    lines = [
        "i = 1",
        "rate = k = scale = 1.0",
        "look_up = lambda x: x * scale",
        "for x in look():",
        *(f"    {line}" for line in turn.splitlines()),
        "    i += 1",
    ]
    text = "\n".join(lines if at_top else ["def train():", *(f"    {line}" for line in lines), "train()"])
    weight = torch.nn.Parameter(torch.ones(4))
    return "i" in find_counted_in(text, weight=weight, model=Tempered(), meter=Meter(), pbar=Bar(), **KNOWN)


@pytest.mark.parametrize("at_top", [False, True])
@pytest.mark.parametrize("name", REACHING)
def test_numbers_that_reach_a_backward(name: str, at_top: bool) -> None:
    assert is_counted(REACHING[name], at_top)


@pytest.mark.parametrize("at_top", [False, True])
@pytest.mark.parametrize("name", SHOWN)
def test_numbers_that_are_only_shown(name: str, at_top: bool) -> None:
    assert not is_counted(SHOWN[name], at_top)


def test_a_member_of_what_a_function_reads_around_it() -> None:
    text = "def read(x): return (x / options.rate).requires_grad_()\n"
    text += "for x in look():\n    read(x).sum().backward()\n    options.rate *= 0.9\n"
    assert "options.rate" in find_counted_in(text, options=options)


def test_a_variable_that_hides_the_one_that_a_function_reads() -> None:
    text = (
        "total = 8\n"
        "def divide(x): return (x / total).requires_grad_()\n"
        "def train():\n"
        "    total = 0.0\n"
        "    for x in look():\n"
        "        loss = divide(x).sum()\n"
        "        loss.backward()\n"
        "        total += loss.item()\n"
        "    return total\n"
        "train()\n"
    )
    assert "total" not in find_counted_in(text)


def test_functions_are_read_once_however_often_they_are_called() -> None:
    text = "def a0(x): return x.sum()\n"
    for depth in (1, 2, 3):
        text += f"def a{depth}(x):\n" + f"    x = a{depth - 1}(x)\n" * 8 + "    return x\n"
    functions: dict[str, Any] = {"__name__": __name__}
    exec(text, functions)
    KNOWN["deep"] = functions["a3"]
    began_s = time.process_time()
    assert is_counted("deep(x * weight * i).backward()")
    assert time.process_time() - began_s < 2


def count_errors(errors: int) -> None:
    for value in ("1", "one"):
        try:
            int(value)
        except ValueError:
            errors += 1


def try_again() -> int:
    try:
        int("one")
    except ValueError:
        for value in (1, 2):
            errors = value
    return errors


def after_handling(value: int) -> int:
    for each in (1, 2):
        with open(str(each)):
            total = each
    value += 1
    return total


def halve_after_errors(scale: float) -> float:
    for _ in range(3):
        try:
            for each in (1, 2):
                with open(str(each)):
                    total = each * scale
                str(total)
        except OSError:
            scale *= 0.5
    return scale


@pytest.mark.parametrize("function", [halve_after_errors])
def test_a_loop_has_no_handlers_of_loops_around_it(function: FunctionType) -> None:
    places = [one.offset for one in dis.get_instructions(function) if one.opname == "FOR_ITER"]
    outer, inner = (find_loop(function.__code__, place, innermost=True) for place in places)
    assert outer is not None and inner is not None
    assert "scale" in outer.list_written() and inner.list_written() == {"each", "total"}


@pytest.mark.parametrize(
    ("function", "written"),
    [(count_errors, {"value", "errors"}), (try_again, {"value", "errors"}), (after_handling, {"each", "total"})],
)
def test_a_loop_has_its_handlers_and_nothing_behind_it(function: FunctionType, written: set[str]) -> None:
    place = next(one.offset for one in dis.get_instructions(function) if one.opname == "FOR_ITER")
    loop = find_loop(function.__code__, place, innermost=True)
    assert loop is not None
    assert loop.list_written() == written
