"""What a script's objects, models, optimizers and data hold comes back; what is of a turn or of a reader does not."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tests.training.state.script.test_script_objects import STEPS, Steps, make_run, run_script
from torch import nn

PACKAGED = """
import torch
class Average:
    def __init__(self, w): self.count, self.shadow = 0, [w.clone()]
    def update(self): self.count += 1; self.shadow[0].add_(1)
    def state_dict(self): return {'count': self.count, 'shadow': self.shadow}
    def load_state_dict(self, state): self.count, self.shadow = state['count'], [one.clone() for one in state['shadow']]
class Around:
    def __init__(self): self.ema, self.seen = torch.nn.Linear(2, 2), 0
class Base(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self._cached, self._hooked = 0, {}
    def enter(self): self._cached += 1
class Stream(Average):
    def __iter__(self): return iter(())
class Wide(torch.optim.Optimizer):
    def __init__(self, ps):
        super().__init__(ps, {})
        self.k, self.initialized = 0, False
    def step(self, closure=None): self.k += 1; self.initialized = True
"""


@pytest.fixture
def package() -> Iterator[ModuleType]:
    """A module that its file says is installed."""
    name = "packaged_for_tests"
    module = ModuleType(name)
    module.__file__ = f"/usr/lib/python3/site-packages/{name}.py"
    exec(compile(PACKAGED, module.__file__, "exec"), vars(module))
    sys.modules[name] = module
    yield module
    del sys.modules[name]


def go(text: str, saved: dict[str, Any] | None = None, **more: Any) -> tuple[dict[str, Any], Steps]:
    """Run a script that says by `give(...)` what the run was given."""
    run = make_run(nn.Linear(1, 1))

    def give(dataset: Any = None, collate: Any = None, **parts: Any) -> None:
        run.loader.feed = SimpleNamespace(dataset=dataset, collate=collate, sampler=None, batch_sampler=None)
        vars(run).update({name: [one] for name, one in parts.items()})

    steps = Steps(run, saved)
    more["begin"] = lambda: run.objects.begin(run)  # as `run.epochs` does
    space = run_script(text, steps, nn.Linear(1, 1), give=give, **more)  # type: ignore[arg-type]
    return space, steps


def go_on(text: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any], Steps]:
    """What a process has that is killed after its steps, one that goes on from there, and what that was told."""
    before, first = go(text, **more)
    values = {name: repr(value) for name, value in before.items()}
    after, second = go(text.partition("for step in loader")[0] + "for step in loader: break", first.captured, **more)
    return values, after, second


MODEL = """
class Config:
    __slots__ = ('beta', 'late')
    def __init__(self): self.beta = 1.0
class Net(nn.Module):
    tau = 1.0
    def __init__(self):
        super().__init__()
        self.a, self.inner = nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.5))
        self._rate, self.scale, self.config, self.public = 1.0, torch.ones(2), Config(), 1
        self._calls, self.out = 0, None
    def forward(self, x):
        self._calls += 1
        self.out = self.note(x)
        return self.out
    def note(self, x):
        self.noted = torch.ones(3)
        return self.a(x)
net = Net()
give(models=net)
"""


def test_what_a_model_has_beside_weights_and_settings() -> None:
    text = (
        MODEL
        + """
for step in loader:
    net(torch.ones(1, 2))
    net._rate *= 0.5; net.scale = net.scale * 2; net.config.beta += 1; net.public += 1; Net.tau += 1
    net.inner._mine = 4; net.graph = net.a.weight * 2
    net.config.late = 3
"""
    )
    _, after, second = go_on(text)
    net = after["net"]
    assert (net._rate, net.config.beta, net.config.late, type(net).tau) == (0.125, 4.0, 3, 4.0)
    assert torch.equal(net.scale, torch.full((2,), 8.0)) and net.inner._mine == 4
    assert (net.public, net._calls, net.out) == (1, 0, None) and not hasattr(net, "noted") and not hasattr(net, "graph")
    assert second.lost == []


def test_what_a_package_sets_in_a_model_is_left_alone(package: ModuleType) -> None:
    text = """
class Mine(package.Base):
    def __init__(self):
        super().__init__()
        self._own = 1
net = Mine()
give(models=net)
for step in loader:
    net.enter(); net._hooked[step] = 1; net._own += 1
"""
    _, steps = go(text, package=package)
    assert steps.captured["values"] == {"prepared model._own": 4}
    _, steps = go("net = package.Base()\ngive(models=net)\nfor step in loader: net.enter()", package=package)
    assert steps.captured["values"] == {} and steps.captured["missing"] == []


def test_what_an_optimizer_of_the_scripts_own_counts() -> None:
    text = """
class Mine(torch.optim.Optimizer):
    def __init__(self, ps): super().__init__(ps, {}); self.t, self.means, self.on = 0, [], False
    def step(self, closure=None): self.t += 1; self.means.append(torch.ones(2)); self.on = True
mine = Mine(model.parameters())
give(optimizers=mine)
for step in loader: mine.step()
"""
    _, after, _ = go_on(text)
    assert after["mine"].t == STEPS and len(after["mine"].means) == STEPS and after["mine"].on


def test_of_a_packages_optimizer_numbers_alone_are_brought_back(package: ModuleType) -> None:
    text = "o = package.Wide(model.parameters())\ngive(optimizers=o)\nfor step in loader: o.step()"
    _, after, _ = go_on(text, package=package)
    assert after["o"].k == STEPS and after["o"].initialized is False


DATA = """
class Shift:
    def __init__(self): self.by = 1.0
    def __call__(self, x): return x + self.by
class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.shift, self.noise, self.mask, self.options = Shift(), 1.0, torch.ones(2), {'p': 1.0}
        self.reads, self.file, self.lines = 0, None, []
    def __getitem__(self, i):
        self.open()
        self.lines.append(i)
        return self.shift(i)
    def open(self):
        self.reads += 1
        self.file = self.file or 'open'
def collate(batch): return batch
data = Data()
give(torch.utils.data.Subset(data, [0]), collate)
"""


def test_what_the_loop_sets_on_data_comes_back_and_what_reading_leaves_does_not() -> None:
    text = (
        DATA
        + """
for step in loader:
    data[step]
    data.noise *= 0.5; data.shift.by += 1; data.mask.mul_(2); data.options['p'] -= 0.25
"""
    )
    _, after, second = go_on(text)
    data = after["data"]
    assert (data.noise, data.shift.by, data.options) == (0.125, 4.0, {"p": 0.25})
    assert torch.equal(data.mask, torch.full((2,), 8.0))
    assert (data.reads, data.file, data.lines, second.lost) == (0, None, [], [])


def test_what_the_first_epochs_own_lines_set_comes_back() -> None:
    text = DATA + "begin()\nif True:\n    data.noise = 0.5\nfor step in loader: pass"
    _, first = go(text)
    after, _ = go(DATA + "begin()\nfor step in loader: break", first.captured)
    assert first.captured["values"] == {"prepared data.dataset.noise": 0.5} and after["data"].noise == 0.5


def test_a_cache_that_reading_fills_is_the_process_own() -> None:
    text = """
class Cached(torch.utils.data.Dataset):
    def __init__(self): self.cache, self.full, self.noise = torch.zeros(4), {'a': 0}, 1.0
    def __getitem__(self, i):
        self.cache[i] = 1; self.full['a'] += 1
data = Cached()
give(data)
for step in loader: data[step]; data.noise += 1
"""
    assert go(text)[1].captured["values"] == {"prepared data.noise": 4.0}


HELD = """
import enum
from collections import deque
import numpy as np
class Phase(enum.Enum):
    FIRST = 1
    LAST = 2
class Stage:
    def __init__(self, lr): self.lr = lr
class Trainer:
    steps = 0
    def __init__(self):
        self.phase, self.stages, self.last, self.pair = Phase.FIRST, [Stage(1.0), Stage(2.0)], deque([0], 2), (0, 'a')
        self.stage, self.seen, self.sums, self.best = self.stages[0], set(), np.zeros(2, dtype=np.float32), {'v': 9.0}
        self.ema = {'w': torch.zeros(2)}
def make():
    count, held = 0, {}
    def update():
        nonlocal count
        count += 1
        held[count] = torch.ones(1)
        return count, held
    return update
trainer, update = Trainer(), make()
"""


def test_values_of_every_kind_come_back() -> None:
    text = (
        HELD
        + """
for step in loader:
    trainer.phase, trainer.stage, trainer.pair = Phase.LAST, trainer.stages[1], (step, 'b')
    trainer.last.append(step); trainer.seen.add(step); trainer.sums += 1; trainer.best['v'] = np.float32(step)
    trainer.ema['w'] = trainer.ema['w'] + model.weight.new_ones(2).requires_grad_()
    trainer.late = torch.ones(2) * step
    Trainer.steps += 1
    update()
"""
    )
    _, after, second = go_on(text)
    trainer = after["trainer"]
    assert trainer.phase is after["Phase"].LAST and after["Phase"].FIRST.value == 1
    assert trainer.stage is trainer.stages[1] and [one.lr for one in trainer.stages] == [1.0, 2.0]
    assert list(trainer.last) == [1, 2] and trainer.last.maxlen == 2 and trainer.seen == {0, 1, 2}
    assert trainer.sums.tolist() == [3, 3] and trainer.sums.dtype == "float32" and trainer.pair == (2, "b")
    assert trainer.best == {"v": 2.0} and type(trainer.best["v"]).__name__ == "float32"
    assert torch.equal(trainer.ema["w"], torch.full((2,), 3.0)) and torch.equal(trainer.late, torch.full((2,), 2.0))
    assert type(trainer).steps == STEPS
    count, held = after["update"]()
    assert count == STEPS + 1 and list(held) == [1, 2, 3, 4]
    assert second.lost == []


def test_what_has_vanished_and_what_came_later_is_told() -> None:
    text = (
        HELD
        + """
class Writer: pass
trainer.value, trainer.other, trainer.kept = 1.0, None, 1
for step in loader:
    trainer.value = Stage(step); trainer.new = Stage(1.0); trainer.other = sys.stdout
    trainer.stages[0] = 4
    vars(trainer).pop('kept', None)
"""
    )
    _, _, second = go_on(text, sys=sys)
    told = {"trainer.value", "trainer.new", "trainer.kept"}
    assert told <= {phrase.removesuffix(" is not what it was") for phrase in second.lost}
    assert not any("other" in phrase for phrase in second.lost)


def test_objects_of_packages_are_kept_by_what_they_say_themselves(package: ModuleType) -> None:
    text = """
average, around, criterion = package.Average(torch.zeros(2)), package.Around(), nn.CrossEntropyLoss(label_smoothing=0.5)
stream = package.Stream(torch.zeros(2))
nn.init.zeros_(around.ema.weight)
for step in loader:
    average.update(); stream.update(); around.ema.weight.data.add_(1); around.seen += 1
    criterion.label_smoothing *= 0.5
"""
    _, after, second = go_on(text, package=package)
    assert after["average"].count == STEPS and after["average"].shadow[0].tolist() == [3, 3]
    assert torch.equal(after["around"].ema.weight, torch.full((2, 2), 3.0)) and after["around"].seen == 0
    assert after["criterion"].label_smoothing == 0.0625 and second.lost == []
    assert after["stream"].count == 0  # where data stand is in the run's own state


def test_objects_of_the_scripts_other_modules_are_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "held_beside.py").write_text("average = {'n': 0}\ndef update(): average['n'] += 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "held_beside", raising=False)
    text = "import held_beside\nheld_beside.average['n'] = 0\nfor step in loader: held_beside.update()"
    script = str(tmp_path / "train.py")
    _, first = go(text, file=script)
    assert first.captured["values"] == {"module held_beside.average['n']": STEPS}
    _, second = go(text.replace("loader: held_beside.update()", "loader: break"), first.captured, file=script)
    assert sys.modules["held_beside"].average == {"n": STEPS} and second.lost == []
