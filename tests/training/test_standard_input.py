"""A script that comes by standard input trains like any other."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import torch, springtide
run = springtide.init(logical_workers=2)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(8, 2), torch.randn(8, 1))
model, optimizer, loader = run.prepare(model, optimizer, data, batch_size=2)
for epoch in run.epochs(2):
    for step in loader:
        for x, y in step:
            (model(x) - y).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
print("steps", run.position.step)
"""


def test_a_script_by_standard_input_trains_and_resumes(tmp_path: Path) -> None:
    environment = {**os.environ, "SPRINGTIDE_CHECKPOINT_DIR": str(tmp_path / "saved")}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-"], input=SCRIPT, capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        assert (done.returncode, done.stdout) == (0, "steps 4\n"), done.stderr
