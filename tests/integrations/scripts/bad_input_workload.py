"""Trainings that cannot keep their bits, one after the other in one run; what was said, and whether a weight moved."""

import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch import Trainer as LightningTrainer
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments

import springtide
import springtide.integrations.lightning
from springtide.errors import JobError
from springtide.integrations.accelerate import ElasticAccelerator
from springtide.integrations.hf import ElasticTrainer

warnings.simplefilter("ignore")
springtide.init(logical_workers=2)
place = Path(tempfile.mkdtemp())
sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 32, "n_positions": 8}
language = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
samples = [{"input_ids": torch.arange(8) + number, "labels": torch.arange(8) + number} for number in range(16)]
pairs = TensorDataset(torch.randn(16, 4), torch.randint(0, 2, (16,)))


class Stream(IterableDataset[Any]):
    """Samples without a length."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


class Stepper(TrainerCallback):
    """A callback that steps the optimizer."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        kwargs["optimizer"].step()


class LightningStepper(Callback):
    """The same under Lightning."""

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        trainer.optimizers[0].step()


class Classifier(LightningModule):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return cross_entropy(self.layer(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train_hf(data: Any = samples, callbacks: Any = (), resume: Any = None, **options: Any) -> None:
    """Hugging Face's Trainer."""
    args = TrainingArguments(str(place / "out"), use_cpu=True, max_steps=3, report_to=[], **options)
    trainer = ElasticTrainer(model=language, args=args, train_dataset=data, callbacks=list(callbacks))
    trainer.train(resume_from_checkpoint=resume)


def train_lightning(data: Any = pairs, **options: Any) -> None:
    """Lightning's Trainer."""
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = LightningTrainer(**{"accelerator": "cpu", "devices": 2, "max_epochs": 1, **quiet, **options})
    trainer.fit(classifier, DataLoader(data, batch_size=4))


def train_accelerate(data: Any = pairs, **options: Any) -> None:
    """A loop with an Accelerator, up to its first step."""
    accelerator = ElasticAccelerator(cpu=True, **options)
    optimizer = torch.optim.SGD(classifier.parameters(), lr=0.1)
    accelerator.prepare(classifier, optimizer, DataLoader(data, batch_size=4))


classifier = Classifier()
mixed = place / "checkpoint-2"
mixed.mkdir()
for name in ("trainer_state.json", "rng_state.pth", "rng_state_0.pth"):
    (mixed / name).write_text("{}")
ours = {"strategy": "springtide"}
tried: dict[str, Callable[[], None]] = {
    "hf fsdp": lambda: train_hf(fsdp=True),
    "hf auto_find_batch_size": lambda: train_hf(auto_find_batch_size=True),
    "hf callback": lambda: train_hf(callbacks=[Stepper()]),
    "hf stream": lambda: train_hf(Stream(samples)),
    "hf checkpoint": lambda: train_hf(resume=str(mixed)),
    "accelerate fsdp": lambda: train_accelerate(fsdp_plugin=object()),
    "accelerate stream": lambda: train_accelerate(Stream(pairs)),
    "lightning stream": lambda: train_lightning(Stream(pairs), **ours),
    "lightning no end": lambda: train_lightning(max_epochs=-1, **ours),
    "lightning callback": lambda: train_lightning(callbacks=[LightningStepper()], **ours),
    "lightning cut": lambda: train_lightning(limit_train_batches=1, **ours),
}
models = (language, classifier)
before = [parameter.clone() for model in models for parameter in model.parameters()]
said = {}
for name, train in tried.items():
    try:
        train()
    except JobError as error:
        said[name] = str(error)
now = [parameter for model in models for parameter in model.parameters()]
is_untouched = all(torch.equal(*both) for both in zip(before, now, strict=True))
print("SAID " + json.dumps({"said": said, "untouched": is_untouched}), flush=True)
