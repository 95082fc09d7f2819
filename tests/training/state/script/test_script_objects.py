"""What objects in a script's variables hold belongs to the state once it has changed, and is put back in place."""

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from springtide.training.state.script.loop_variables import find_lost, read_carried
from springtide.training.state.script.script_objects import ScriptObjects, adopt_user

STEPS = 3
BEFORE = """
class Average:
    def __init__(self): self.shadow, self.count, self._last = {'w': torch.zeros(2)}, 0, None
    def update(self):
        self.count += 1
        self._last = torch.full((2,), float(self.count))
        self.shadow['w'].data.add_(1)
average, slow, frozen = Average(), nn.Linear(2, 2, bias=False), nn.Linear(2, 2)
best, history, shadow, seen, late, alias = [9.0, None], [], torch.zeros(3), 0, None, model.weight
nn.init.zeros_(slow.weight)
"""
LOOP = """
for step in loader:
    loss = torch.ones(4)
    average.update()
    with torch.no_grad():
        slow.weight.add_(1)
    best[0], best[1] = float(step), {'w': torch.ones(2)}
    history.append(step)
    shadow = shadow + 1
    seen += 1
    if late is None:
        late = nn.Linear(1, 1)
"""


def make_run(model: nn.Module) -> Any:
    feed = SimpleNamespace(dataset=None, collate=None, sampler=None, batch_sampler=None)
    loader = SimpleNamespace(given=None, feed=feed)
    parts: dict[str, Any] = {"models": [model], "optimizers": [], "schedulers": [], "scalers": [], "kept": {}}
    return SimpleNamespace(**parts, loader=loader, state={}, objects=ScriptObjects(), device=torch.device("meta"))


def run_script(
    text: str, loader: Iterator[int], model: nn.Module, file: str = "script.py", **more: Any
) -> dict[str, Any]:
    space = {"loader": loader, "model": model, "nn": nn, "torch": torch, "__name__": "script", **more}
    exec(compile(text, file, "exec"), space)
    return space


class Steps:
    """A loader's part: goes on from what was saved, if anything was, and captures after every step."""

    def __init__(self, run: Any, saved: dict[str, Any] | None = None, before: dict[str, str] | None = None) -> None:
        self.run, self.saved, self.before = run, saved, before or {}
        self.captured: dict[str, Any] = {}
        self.lost: list[str] = []
        self.variables: dict[str, str] = {}

    def __iter__(self) -> Iterator[int]:
        if self.saved is not None:
            self.lost = self.run.objects.adopt(self.run, copy.deepcopy(self.saved))
            self.lost += find_lost(self.before)
        self.run.objects.begin(self.run)
        for number in range(STEPS):
            yield number
            found = self.run.objects.capture(self.run)
            # The frames of this file are none of the script's.
            self.captured = {
                "values": {path: one for path, one in found["values"].items() if "()" not in path},
                "left_out": [path for path in found["left_out"] if "()" not in path],
                "aliases": {path: to for path, to in found["aliases"].items() if "()" not in path},
                "missing": [path for path in found["missing"] if "()" not in path],
            }
            self.variables = {name: text for name, text in read_carried().items() if "()" not in name}


def go(text: str, saved: dict[str, Any] | None = None, before: dict[str, str] | None = None) -> tuple[Any, Steps]:
    model = nn.Linear(2, 2)
    steps = Steps(make_run(model), saved, before)
    return run_script(text, steps, model), steps  # type: ignore[arg-type]


def test_what_has_changed_is_captured_and_nothing_else() -> None:
    _, steps = go(BEFORE + LOOP)
    changed = {"average.shadow['w']", "average.count", "average._last", "slow.weight", "best[0]", "best[1]", "history"}
    assert steps.captured["values"].keys() == changed | {"shadow"}
    assert steps.captured["left_out"] == []


def test_a_process_that_goes_on_has_what_was_captured() -> None:
    _, first = go(BEFORE + LOOP)
    space, second = go(BEFORE + LOOP, first.captured, first.variables)
    assert space["average"].count == 2 * STEPS and torch.equal(space["average"].shadow["w"], torch.full((2,), 6.0))
    assert torch.equal(space["slow"].weight, torch.full((2, 2), 6.0)) and torch.equal(
        space["shadow"], torch.full((3,), 6.0)
    )
    assert space["history"] == [0, 1, 2, 0, 1, 2]
    assert second.lost == ["late was Linear(...) and is None", "seen was 3 and is 0"]
    assert second.captured["values"].keys() == first.captured["values"].keys()


def test_what_came_once_is_captured_again_though_it_does_not_change() -> None:
    _, first = go(BEFORE + LOOP)
    _, second = go(BEFORE + "for step in loader: pass", first.captured)
    assert second.captured["values"].keys() == first.captured["values"].keys()


def test_what_a_function_with_the_loop_is_given_is_the_same_as_outside() -> None:
    text = """
class Criterion(nn.Module):
    def __init__(self): super().__init__(); self.weights = {'a': 1.0}; self.register_buffer('seen', torch.zeros(1))
def train_one_epoch(given, steps):
    for step in steps: given.seen += 1
criterion = Criterion()
begin_epochs()
criterion.weights['a'] = 2.0
train_one_epoch(criterion, loader)
"""
    model = nn.Linear(2, 2)
    steps = Steps(make_run(model))
    run_script(text, steps, model, begin_epochs=lambda: steps.run.objects.begin(steps.run))  # type: ignore[arg-type]
    assert steps.captured["missing"] == []
    assert steps.captured["values"].keys() == {"criterion.weights['a']", "criterion.seen"}


def test_what_is_put_into_a_list_of_an_outer_function_keeps_its_name() -> None:
    text = """
average = nn.Linear(1, 1, bias=False)
for step in loader:
    with torch.no_grad():
        average.weight.add_(1)
    put_aside[:] = [average]
"""
    model, kept = nn.Linear(2, 2), list[Any]()
    steps = Steps(make_run(model))
    run_script(text, steps, model, put_aside=kept)  # type: ignore[arg-type]
    assert len(kept) == 1 and "average.weight" in steps.captured["values"]
    assert steps.captured["missing"] == []


def test_what_a_list_has_is_found_there_though_an_outer_list_has_it_by_now() -> None:
    text = """
shadow = [torch.zeros(2)]
for step in loader:
    shadow[0].add_(1)
    put_aside[:] = shadow
"""

    def train(saved: dict[str, Any] | None = None) -> tuple[torch.Tensor, Steps]:
        model, kept = nn.Linear(2, 2), list[Any]()
        steps = Steps(make_run(model), saved)
        return run_script(text, steps, model, put_aside=kept)["shadow"][0], steps  # type: ignore[arg-type]

    _, first = train()
    shadow, second = train(first.captured)
    assert shadow.tolist() == [2.0 * STEPS] * 2 and second.lost == []


def test_what_has_no_place_any_more_is_told() -> None:
    _, first = go(BEFORE + LOOP)
    _, second = go(BEFORE.replace("shadow, seen", "shade, seen") + "for step in loader: pass", first.captured)
    assert second.lost == ["shadow is not what it was"]


def test_what_no_checkpoint_can_hold_is_told() -> None:
    _, first = go("class Own: pass\nheld = []\nfor step in loader: held.append(Own())")
    assert (first.captured["values"], first.captured["left_out"]) == ({}, ["held"])
    _, second = go("held = []\nfor step in loader: pass", first.captured)
    assert second.lost == ["held is not what it was"]


def test_data_and_what_the_run_has_are_left_alone() -> None:
    text = """
class Cached(torch.utils.data.Dataset):
    def __init__(self): self.cache = {}
class Trainer:
    def __init__(self): self.model, self.data = model, Cached()
trainer, weights = Trainer(), [one.detach() for one in model.parameters()]
for step in loader:
    trainer.data.cache[step] = torch.ones(2)
    with torch.no_grad(): model.weight.add_(1)
"""
    assert not any(go(text)[1].captured.values())


def test_what_a_script_has_taken_out_of_run_state_is_what_is_saved_again() -> None:
    run = make_run(nn.Linear(1, 1))
    adopt_user(run, {"shadow": [torch.zeros(2)], "best": 1.0}, (), is_final=False)
    shadow = run.state.setdefault("shadow", [])
    adopt_user(run, {"shadow": [torch.ones(2)], "best": 1.0}, (), is_final=True)
    shadow[0].add_(1)
    assert run.state["shadow"] is shadow and torch.equal(run.state["shadow"][0], torch.full((2,), 2.0))


def test_what_a_script_has_put_into_run_state_itself_is_not_written_to() -> None:
    run, own = make_run(nn.Linear(1, 1)), torch.zeros(2)
    adopt_user(run, {"first": torch.ones(2)}, (), is_final=False)
    run.state["first"] = own
    adopt_user(run, {"first": torch.ones(2)}, (), is_final=True)
    assert torch.equal(own, torch.zeros(2)) and torch.equal(run.state["first"], torch.ones(2))


def test_what_was_on_an_accelerator_is_on_one_where_the_script_has_taken_it_out() -> None:
    run, placed = make_run(nn.Linear(1, 1)), [("ema",), ("both", 1)]
    adopt_user(run, {"ema": torch.ones(2), "both": [torch.ones(1), torch.ones(1)]}, placed, is_final=False)
    ema, both = run.state["ema"], run.state["both"]
    adopt_user(run, {"ema": torch.ones(2), "both": [torch.ones(1), torch.ones(1)]}, placed, is_final=True)
    assert run.state["ema"] is ema and run.state["both"] is both
    assert [one.device.type for one in (ema, *both)] == ["meta", "cpu", "meta"]
