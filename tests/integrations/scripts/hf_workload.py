"""A fine-tune with Hugging Face's Trainer of a tiny model made on the spot, with the options that a test asks for."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import EarlyStoppingCallback, GPT2Config, GPT2LMHeadModel, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import springtide
from springtide.integrations.hf import ElasticTrainer

asked = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
resume, save = asked.pop("resume", None), asked.pop("save", None)
hides, gathers = asked.pop("collate", False), asked.pop("gather", False)
patience = asked.pop("patience", 0)
springtide.init(logical_workers=4)
torch.manual_seed(1)
sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 64, "n_positions": 32}
model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
if asked.pop("lora", False):
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(r=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True))


def make_sample(number: int) -> dict[str, torch.Tensor]:
    """A sample of its own length of labels."""
    ids = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(number))
    return {"input_ids": ids, "labels": torch.where(torch.arange(16) < number % 7, -100, ids)}


def collate(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """A batch in which some inputs are hidden at random, as a collator for masked language modelling does."""
    batch = {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}
    hidden = torch.rand(batch["input_ids"].shape) < 0.1
    return {**batch, "input_ids": batch["input_ids"].masked_fill(hidden, 0)}


class GatheringTrainer(ElasticTrainer):
    """A Trainer whose loss is the mean over all ranks."""

    def compute_loss(self, *given: Any, **named: Any) -> Any:
        return self.accelerator.gather(super().compute_loss(*given, **named)).mean()


data = [make_sample(number) for number in range(asked.pop("samples", 90))]
options = {
    "output_dir": "out",
    "use_cpu": True,
    "per_device_train_batch_size": 4,
    "num_train_epochs": 2,
    "learning_rate": 1e-2,
    "logging_steps": 3,
    "report_to": [],
    "save_strategy": "no",
    "disable_tqdm": True,
}
trainer = (GatheringTrainer if gathers else ElasticTrainer)(
    model=model,
    args=TrainingArguments(**options | asked),
    train_dataset=data,
    eval_dataset=data[:22],
    data_collator=collate if hides else None,
    callbacks=[EarlyStoppingCallback(patience)] if patience else [],
)
if resume == "last":  # what scripts have that are started again and again
    resume = get_last_checkpoint("out") if Path("out").is_dir() else None
trainer.train(resume_from_checkpoint=resume)
if save:
    trainer.save_model(save)
