"""A script of an installed package (`python -m mine.train`) is looked at as one in a file of its own is."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from springtide.training.state.script import loop_variables
from springtide.training.state.script.loop_variables import is_installed, own_caller

TRAIN = """
import springtide, torch
from mine.state import Trainer
run = springtide.init(logical_workers=2)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.randint(2, (40,)))
model, optimizer, loader = run.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=4))
trainer = Trainer()
for epoch in run.epochs(2):
    for step in loader:
        for x, y in step:
            trainer.find_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
STATE = """
import torch
class Trainer:
    def __init__(self):
        self.hidden = torch.zeros(2)
    def find_loss(self, out, y):
        out = out + self.hidden
        self.hidden = out.detach().mean(0)
        return torch.nn.functional.cross_entropy(out, y)
"""


@pytest.fixture(autouse=True)
def nothing_is_own() -> Iterator[None]:
    yield
    loop_variables.OWN.clear()
    is_installed.cache_clear()


def test_a_script_of_an_installed_package_is_looked_at(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "mine"
    package.mkdir(parents=True)
    for name, text in {"__init__": "", "train": TRAIN, "state": STATE}.items():
        (package / f"{name}.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mine.train"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert "`trainer` (Trainer) changes its attribute 'hidden', a tensor, in every turn" in done.stderr


@pytest.mark.parametrize(
    ("caller", "other", "is_own"),
    [
        ("mine/train.py", "mine/models/net.py", True),
        ("mine/train.py", "minerals/net.py", False),
        ("train.py", "train.py", True),
        ("transformers/trainer.py", "transformers/optimization.py", False),
        ("springtide/examples/cnn/train.py", "springtide/cli/app.py", False),
    ],
)
def test_the_package_of_the_caller_is_own(caller: str, other: str, is_own: bool) -> None:
    place = sysconfig.get_paths()["purelib"]
    exec(compile("own_caller()", f"{place}/{caller}", "exec"), {"own_caller": own_caller, "__name__": "__main__"})
    assert is_installed(f"{place}/{other}") is not is_own
    assert is_installed(f"{place}/torch/nn/modules/linear.py")
