"""A loop with an Accelerator over a tiny model, with the options that a test asks for."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DataLoaderConfiguration
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import springtide
from springtide.integrations.accelerate import ElasticAccelerator


class Total:
    """A sum over all steps, by which the weights are changed."""

    def __init__(self) -> None:
        self.total = torch.zeros(())

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What is saved."""
        return {"total": self.total}

    def load_state_dict(self, saved: dict[str, torch.Tensor]) -> None:
        """Go on from there."""
        self.total = saved["total"]


asked = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
run = springtide.init(logical_workers=4)
accelerator = ElasticAccelerator(
    cpu=True,
    gradient_accumulation_steps=asked.get("accumulate", 1),
    dataloader_config=DataLoaderConfiguration(use_seedable_sampler=asked.get("seedable", False)),
)
torch.manual_seed(1)
memory = Total()
accelerator.register_for_checkpointing(memory)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 4))
data = TensorDataset(torch.randn(90, 16), torch.randint(0, 4, (90,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
loader = DataLoader(data, batch_size=4, shuffle=True)
held: Any = DataLoader(range(len(data)), batch_size=4, shuffle=True)  # type: ignore[arg-type]
model, optimizer, loader, held, scheduler = accelerator.prepare(model, optimizer, loader, held, scheduler)


def evaluate(name: Any) -> None:
    """Write how many of the samples are told right, and check that each is there once."""
    model.eval()
    right = 0
    found_words: list[str] = []
    for places in held:
        inputs, targets = data[places]
        with torch.no_grad():
            found = model(inputs).argmax(1)
        wide = found.reshape(-1, 1).repeat(1, 1 + int(targets[0]))  # of its own size on each rank, as generated text is
        wide = accelerator.pad_across_processes(wide, dim=1, pad_index=-100)
        words = accelerator.gather_for_metrics([f"sample {place}" for place in places.tolist()])
        found, targets, wide = accelerator.gather_for_metrics((found, targets, wide))
        assert wide[:, 0].tolist() == found.tolist()
        assert len(words) == len(found)
        right, found_words = right + int((found == targets).sum()), found_words + words
    model.train()
    assert sorted(found_words) == sorted(f"sample {place}" for place in range(len(data))), found_words
    seen = len(found_words)
    if accelerator.is_main_process:
        with Path("accuracy.txt").open("a") as file:
            file.write(f"{name} {right / seen} {found_words[:8]}\n")


if asked.get("load"):
    accelerator.load_state(asked["load"])
if asked.get("baseline"):
    accelerator.wait_for_everyone()
    evaluate("before")
for epoch in accelerator.epochs(3):
    for place, step in loader.enumerate():
        assert place == step.index == step.number - epoch * len(loader)
        for inputs, targets in step:
            with accelerator.accumulate(model):
                loss = cross_entropy(model(inputs), targets)
                accelerator.backward(loss * (1 + accelerator.process_index % 2))  # a rank's own
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        plain = accelerator.unwrap_model(model)
        with torch.no_grad():
            memory.total = memory.total + plain[0].weight.sum()
            plain[0].bias.add_(memory.total * 1e-5)
        accelerator.wait_for_everyone()
    evaluate(epoch)
if asked.get("save"):
    accelerator.save_state(asked["save"])
