"""A loop with Fabric over two tiny models, with samplers of its own and the options that a test asks for."""

import contextlib
import json
import sys
import warnings

import torch
from lightning.fabric import Fabric
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

import springtide
from springtide.integrations.lightning import make_fabric_strategy

warnings.simplefilter("ignore")
asked = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
springtide.init(logical_workers=4)
accumulate = asked.get("accumulate", 1)
strategy = make_fabric_strategy(accumulate=accumulate) if accumulate > 1 else "springtide"
fabric = Fabric(accelerator="cpu", devices=4, strategy=strategy)
fabric.launch()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 4))
data = TensorDataset(torch.randn(90, 16), torch.randint(0, 4, (90,)))
model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
other = torch.nn.Linear(16, 4)
other = fabric.setup_module(other)
second = fabric.setup_optimizers(torch.optim.SGD(other.parameters(), lr=1e-2, momentum=0.9))
weighted = WeightedRandomSampler([float(number) for number in range(90)], 80)
loader = fabric.setup_dataloaders(DataLoader(data, batch_size=4, sampler=weighted))
held = fabric.setup_dataloaders(DataLoader(data, batch_size=8, sampler=SubsetRandomSampler([1, 5, 7])))
for epoch in fabric.strategy.walk_epochs(2):
    for step in loader:
        assert step.index == step.number - epoch * len(loader)
        for inputs, targets in step:
            if step.index == 1:
                fabric.barrier()
                assert sum(len(places) for _, places in held) in (1, 3)
            # Of one of the two models the gradients are held back, those of the other are reduced in every backward.
            with fabric.no_backward_sync(model, enabled=step.has_more) if accumulate > 1 else contextlib.nullcontext():
                loss = cross_entropy(model(inputs) + other(inputs), targets)
                fabric.backward(loss * (1 + fabric.global_rank % 2))  # a rank's own
        if asked.get("twice"):
            for inputs, targets in step:
                fabric.backward(cross_entropy(model(inputs), targets))
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        for one in (optimizer, second):
            one.step()
            one.zero_grad()
    with torch.no_grad():
        seen = sum(len(targets) for _, targets in held)
    assert seen in (1, 3), f"{seen} samples"  # a stock rank has one of three
