"""A classifier in a loop with an Accelerator; the lines that make it elastic are marked.

Submit it (`springtide submit job.yaml`), run it alone (`python train.py`) or on processes (`torchrun --nproc-per-node 2
train.py`), and prove it: `springtide verify train.py --steps 20`.
"""

import argparse

import torch
from model import load_data, make_model
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import springtide  # 1
from springtide.integrations.accelerate import ElasticAccelerator as Accelerator  # 2: was `from accelerate import ...`

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
asked = parser.parse_args()

springtide.init(logical_workers=4)  # 3: the ranks that `accelerate launch` would start
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)  # leave `cpu` out where there is a GPU
data, held_out = load_data()
model = make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader, held = DataLoader(data, batch_size=16, shuffle=True), DataLoader(held_out, batch_size=16)
model, optimizer, loader, held = accelerator.prepare(model, optimizer, loader, held)
for epoch in accelerator.epochs(asked.epochs):  # 4: was `range(...)`
    for step in loader:  # 5: one update, the same on every process
        for images, digits in step:  # each logical worker's accumulated batches; was `in loader`
            with accelerator.accumulate(model):
                accelerator.backward(cross_entropy(model(images), digits))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    right = 0
    for images, digits in held:
        with torch.no_grad():
            found = model(images).argmax(1)
        found, digits = accelerator.gather_for_metrics((found, digits))
        right += int((found == digits).sum())
    model.train()
    accelerator.print(f"epoch {epoch}: {right / len(held_out):.3f} of the held-out digits")
accelerator.save_state("outputs")
