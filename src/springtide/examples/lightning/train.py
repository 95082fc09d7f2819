"""A classifier with Lightning's Trainer; the three lines that make it elastic are marked.

Submit it (`springtide submit job.yaml`), run it alone (`python train.py`) or on processes (`torchrun --nproc-per-node 2
train.py`), and prove it: `springtide verify train.py --steps 20`.
"""

import argparse

from lightning.pytorch import Trainer
from model import Digits, load_data
from torch.utils.data import DataLoader

import springtide.integrations.lightning  # 1

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
asked = parser.parse_args()

springtide.init(logical_workers=4)  # 2: the ranks that Lightning would start
trainer = Trainer(
    accelerator="cpu",  # "auto" where there is a GPU
    devices=4,
    strategy="springtide",  # 3: was "ddp"
    max_epochs=asked.epochs,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Digits(), DataLoader(load_data(), batch_size=32, shuffle=True))
trainer.save_checkpoint("digits.ckpt")
