"""A loop with an Accelerator over a tiny model, with the options that a test asks for."""

import json
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import springtide
from springtide.integrations.accelerate import ElasticAccelerator

asked = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
run = springtide.init(logical_workers=4)
accelerator = ElasticAccelerator(cpu=True, gradient_accumulation_steps=asked.get("accumulate", 1))
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 4))
data = TensorDataset(torch.randn(90, 16), torch.randint(0, 4, (90,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
loader = DataLoader(data, batch_size=4, shuffle=True)
held = DataLoader(data, batch_size=4)
model, optimizer, loader, held, scheduler = accelerator.prepare(model, optimizer, loader, held, scheduler)
for epoch in accelerator.epochs(3):
    for place, step in loader.enumerate():
        assert place == step.index == step.number - epoch * len(loader)
        for inputs, targets in step:
            with accelerator.accumulate(model):
                accelerator.backward(cross_entropy(model(inputs), targets))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    model.eval()
    right, seen = 0, 0
    for inputs, targets in held:
        with torch.no_grad():
            found = model(inputs).argmax(1)
        wide = found.reshape(-1, 1).repeat(1, 1 + int(targets[0]))  # of its own size on each rank, as generated text is
        wide = accelerator.pad_across_processes(wide, dim=1, pad_index=-100)
        found, targets, wide = accelerator.gather_for_metrics((found, targets, wide))
        assert wide[:, 0].tolist() == found.tolist()
        right, seen = right + int((found == targets).sum()), seen + len(targets)
    model.train()
    assert seen == len(data), f"{seen} of {len(data)} samples"
    if accelerator.is_main_process:
        with Path("accuracy.txt").open("a") as file:
            file.write(f"{epoch} {right / seen}\n")
if asked.get("save"):
    accelerator.save_state(asked["save"])
