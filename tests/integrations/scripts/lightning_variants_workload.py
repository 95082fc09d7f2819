"""Lightning's Trainer with what scripts of users have, several things at a time; the result is printed."""

import hashlib
import json
import sys
import warnings
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import springtide.integrations.lightning

warnings.simplefilter("ignore")
variant = sys.argv[1]
springtide.init(logical_workers=2)


class Classifier(LightningModule):
    """A network with dropout and statistics of batches, under a schedule by steps."""

    def __init__(self, rate: float = 1e-2) -> None:
        super().__init__()
        self.save_hyperparameters()
        normed = (torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32))
        self.body = torch.nn.Sequential(*normed, torch.nn.ReLU(), torch.nn.Dropout(0.2))
        self.head = torch.nn.Linear(32, 4)

    def find_loss(self, batch: Any) -> torch.Tensor:
        """The loss of a batch."""
        return cross_entropy(self.head(self.body(batch[0])), batch[1])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.find_loss(batch) * (1 + self.global_rank)  # a rank's own
        self.log_dict({"loss": loss, "twice": loss * 2}, on_step=True, on_epoch=True, prog_bar=True)
        return {"loss": loss, "more": loss.detach()}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("held", self.find_loss(batch), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams["rate"])
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Warmed(Classifier):
    """One with a warm-up of its own, and gradients that are changed by hand."""

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        optimizer.step(closure=optimizer_closure)
        for group in optimizer.param_groups:
            group["lr"] = self.hparams["rate"] * min(1.0, (self.trainer.global_step + 1) / 10)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.log("norm", torch.stack([one.grad.norm() for one in self.parameters() if one.grad is not None]).norm())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.hparams["rate"], momentum=0.9)


class Hoarding(Classifier):
    """One that clears its gradients after every second update only, and says what hooks have seen of them."""

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.hparams["rate"])

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
        if batch_idx % 4 == 0:
            optimizer.zero_grad()


class Asking(Classifier):
    """One that asks for a folder and waits in its step; its validation comes after the fit, which has none."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        assert self.trainer.log_dir
        self.trainer.strategy.barrier()
        return super().training_step(batch, batch_idx)


class Watching(Callback):
    """It counts the updates of which it is told, and sums up the gradients of the one before."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_before_zero_grad(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        found = [one.grad for one in pl_module.parameters() if one.grad is not None]
        self.seen.append(float(sum(one.double().abs().sum() for one in found)))


class Alternating(Classifier):
    """Two optimizers and two schedules by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for optimizer in self.optimizers():
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward(self.find_loss(batch))
            optimizer.step()
            self.untoggle_optimizer(optimizer)
        by_epoch, by_step = self.lr_schedulers()
        by_step.step()
        if self.trainer.is_last_batch:
            by_epoch.step()

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")

    def configure_optimizers(self) -> Any:
        body = torch.optim.Adam(self.body.parameters(), lr=1e-2)
        head = torch.optim.SGD(self.head.parameters(), lr=1e-2)
        schedules = torch.optim.lr_scheduler
        return [body, head], [schedules.StepLR(body, 1, 0.5), schedules.ExponentialLR(head, 0.99)]


class Numbers(LightningDataModule):
    """Random numbers."""

    def setup(self, stage: str) -> None:
        drawn = torch.Generator().manual_seed(3)
        inputs, targets = torch.randn(92, 16, generator=drawn), torch.randint(0, 4, (92,), generator=drawn)
        self.data = TensorDataset(inputs, targets)

    def train_dataloader(self) -> Any:
        return DataLoader(self.data, batch_size=4, shuffle=True)

    def val_dataloader(self) -> Any:
        return DataLoader(self.data, batch_size=5)


torch.manual_seed(1)
kinds: dict[str, type[Classifier]] = {"options": Classifier, "warmed": Warmed, "alternating": Alternating}
kinds |= {"hoarding": Hoarding, "watched": Classifier, "asking": Asking}
watching = Watching()
options: dict[str, Any] = {"max_epochs": 3, "logger": CSVLogger("logs"), "log_every_n_steps": 1}
if variant == "options":
    options |= {"accumulate_grad_batches": 3, "gradient_clip_val": 0.5, "gradient_clip_algorithm": "value"}
    options |= {"val_check_interval": 0.5, "precision": "bf16-mixed"}
    best = ModelCheckpoint("best", monitor="held", save_top_k=2, save_last=True)
    options["callbacks"] = [LearningRateMonitor("step"), best, EarlyStopping("held", patience=50)]
if variant in ("hoarding", "watched"):
    options |= {"accumulate_grad_batches": 2 if variant == "hoarding" else 1, "callbacks": [watching]}
unused = "_find_unused_parameters_true" if variant == "alternating" else ""
trainer = Trainer(accelerator="cpu", devices=2, strategy="springtide" + unused, enable_progress_bar=False, **options)
model = kinds[variant]()
numbers = Numbers()
if variant == "asking":
    numbers.setup("fit")
    trainer.fit(model, numbers.train_dataloader())
    trainer.validate(model, numbers.val_dataloader())
else:
    trainer.fit(model, datamodule=numbers)
if trainer.is_global_zero:
    weights = b"".join(one.numpy().tobytes() for one in model.state_dict().values())
    print("RESULT " + json.dumps([hashlib.sha256(weights).hexdigest(), trainer.global_step, watching.seen]), flush=True)
