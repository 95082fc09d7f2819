"""The script of EasyScale's Figure 9: an example's network, which writes the last logical worker's loss at each step.

Run by `experiments.stages`, with tracing on: the trace knows which logical worker is at work. The loss is
written as hexadecimal, so that not a bit of it is lost. Words: example, folder, batch, and `by-process` to add
gradients in the order of the present processes, as a runtime without fixed virtual ranks does.
"""

import sys
from pathlib import Path
from typing import Any

from experiments.loops import load_workload

import springtide
from springtide.training.reduction import gloo_order
from springtide.training.settings import read_settings

workload = load_workload(sys.argv[1])
losses = Path(sys.argv[2]) / f"{read_settings().process}.txt"
batch = int(sys.argv[3])
if sys.argv[4:] == ["by-process"]:
    # With a process per worker gloo's own ring adds, as before; with fewer the sums are made in the plain order.
    gloo_order.fold_order = lambda chunk, ranks: tuple(range(ranks))
    gloo_order.check_installed = lambda ranks, elements=(): (
        True
    )  # else the plain order would be that of four processes too

run: Any = springtide.init(logical_workers=4, seed=0)
bare = workload.model()
made = workload.optimizer(bare.parameters())
model, optimizer, loader = run.prepare(bare, made, workload.data(), batch_size=batch)
with losses.open("a") as lines:
    for _ in run.epochs(1_000_000):
        for step in loader:
            for inputs, targets in step:
                loss = workload.loss(model(inputs), targets)
                if step.worker.rank == run.logical_workers - 1:
                    print(step.number + 1, float(loss).hex(), file=lines, flush=True)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
