"""Lightning's Trainer over a tiny model, in automatic or manual optimization, with the options that a test asks for."""

import json
import sys
import warnings
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

import springtide.integrations.lightning

warnings.simplefilter("ignore")
asked = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
springtide.init(logical_workers=4)


class Classifier(LightningModule):
    """A network with dropout; its manual form trains two halves with an optimizer each."""

    def __init__(self, is_manual: bool) -> None:
        super().__init__()
        self.automatic_optimization = not is_manual
        self.body = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2))
        self.head = torch.nn.Linear(32, 4)

    def configure_optimizers(self) -> Any:
        if not self.automatic_optimization:
            parts = (self.body, self.head)
            return [torch.optim.AdamW(part.parameters(), lr=1e-2) for part in parts]
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        if asked.get("best"):
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "flat"}}
        steps = int(self.trainer.estimated_stepping_batches) if asked.get("total") else 10
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)]

    def find_loss(self, batch: Any) -> torch.Tensor:
        """The loss of a batch."""
        inputs, targets = batch
        return cross_entropy(self.head(self.body(inputs)), targets)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.automatic_optimization:
            loss = self.find_loss(batch) * (1 + batch_idx % 3)
            self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
            return loss
        for optimizer in self.optimizers():
            loss = self.find_loss(batch) * (1 + self.global_rank % 2)  # a rank's own
            self.manual_backward(loss)
            optimizer.step()
            self.zero_grad()
        return None

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("held", self.find_loss(batch))
        self.log("flat", 1.0)


seed_everything(1)
data = TensorDataset(torch.randn(90, 16), torch.randint(0, 4, (90,)))
folder = None if asked.get("logged") else "best"  # else the logger's, which has a number
trainer = Trainer(
    accelerator="cpu",
    devices=4,
    strategy="springtide",
    max_epochs=4 if asked.get("best") else 2,
    logger=CSVLogger("logs") if asked.get("logged") else False,
    enable_checkpointing=asked.get("best", False),
    callbacks=[ModelCheckpoint(folder, monitor="held"), EarlyStopping("held", patience=9)] if asked.get("best") else [],
    enable_progress_bar=False,
    enable_model_summary=False,
    accumulate_grad_batches=asked.get("accumulate", 1),
    val_check_interval=asked.get("check", 1.0),
    num_sanity_val_steps=asked.get("sanity", 2),
    max_time="00:01:00:00" if asked.get("total") else None,
    gradient_clip_val=None if asked.get("manual") else 1.0,
)
loaders = [DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=4)]
if asked.get("samplers"):
    weighted = WeightedRandomSampler([float(number) for number in range(90)], 120)
    loaders = [DataLoader(data, batch_size=4, sampler=weighted)]
    loaders += [DataLoader(data, batch_size=4, sampler=SubsetRandomSampler(list(range(0, 90, 7))))]
trainer.fit(Classifier(asked.get("manual", False)), *loaders)
if "save" in asked:
    trainer.save_checkpoint(asked["save"])
