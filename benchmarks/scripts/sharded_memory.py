"""Trains a GPT for a few steps, sharded or not, and writes what this process holds: run by `training_sharding`.

`sharded_memory.py sharded|whole WIDTH`; with a small width, what a process needs without a model.
"""

import gc
import json
import os
import sys

import torch
from experiments.peaks import Sampler
from torch import nn

import springtide
from springtide.examples.gpt.model import Gpt, TextSource, measure_loss

STEPS = 4
LAYERS = 6


def count_tensors() -> int:
    """Bytes of all tensors that are alive, each memory once."""
    found = {}
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor) and not hasattr(one, "full_tensor") and not one.is_meta:
            storage = one.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


sharded, width = sys.argv[1] == "sharded", int(sys.argv[2])
run = springtide.init(logical_workers=4)
model: nn.Module = Gpt(width, LAYERS)
size = sum(one.numel() * one.element_size() for one in model.parameters())
if sharded:
    for block in model.get_submodule("blocks").children():
        run.fully_shard(block)
    run.fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, loader = run.prepare(model, optimizer, TextSource(64), batch_size=2)
sampler, held = Sampler(), 0
for _ in run.steps(STEPS):
    for step in loader:
        for tokens, targets in step:
            loss = measure_loss(model(tokens), targets)
            loss.backward()
        if step.number == 1:  # the model as it was built is gone by now, and the optimizer has its state
            gc.collect()
            sampler.start()
        if step.number >= 1:
            held = max(held, count_tensors())
        optimizer.step()
        optimizer.zero_grad()
result = {"parameters": size, "held": held, "peak": sampler.bytes}
(run.output_dir / f"memory-{os.getpid()}.json").write_text(json.dumps(result))
