"""Fine-tunes of a tiny classifier with what scripts of users have, several things at a time; the result is printed."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from tests.integrations.scripts.trainer_results import print_result
from tokenizers import Tokenizer, models
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    DataCollatorForLanguageModeling,
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    PreTrainedTokenizerFast,
    TrainingArguments,
)

import springtide
from springtide.integrations.hf import ElasticTrainer

variant = sys.argv[1]
springtide.init(logical_workers=2)
torch.manual_seed(1)
vocabulary = {
    word: number for number, word in enumerate(["<pad>", "<unk>", *(f"w{number}" for number in range(40)), "<mask>"])
}
inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>", mask_token="<mask>")
sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=43, max_position_embeddings=16, num_labels=3, **sizes))


def make_sample(number: int) -> dict[str, Any]:
    """A sample of its own length."""
    ids = torch.randint(2, 42, (3 + number % 7,), generator=torch.Generator().manual_seed(number)).tolist()
    labels = {} if variant == "masked" else {"label": sum(ids) % 3}
    return {"input_ids": ids, "attention_mask": [1] * len(ids), **labels}


def measure(found: Any) -> dict[str, float]:
    """What `compute_metrics` gives."""
    return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}


class WeightedTrainer(ElasticTrainer):
    """A Trainer with a loss of its own, which it logs."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = torch.nn.functional.cross_entropy(outputs.logits, labels, weight=torch.tensor([1.0, 2.0, 0.5]))
        self.log({"weighted": loss.item()})
        if model.training:
            loss = loss * (1 + self.args.process_index)  # a rank's own
        return (loss, outputs) if return_outputs else loss


class HandmadeTrainer(ElasticTrainer):
    """A Trainer with a step and a loader of its own."""

    def get_train_dataloader(self) -> Any:
        loader = DataLoader(self.train_dataset, batch_size=4, shuffle=True, collate_fn=self.data_collator)
        return self.accelerator.prepare(loader)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        model.train()
        inputs = self._prepare_inputs(inputs)
        with self.compute_loss_context_manager():
            loss = self.compute_loss(model, inputs) / self.args.gradient_accumulation_steps
        self.accelerator.backward(loss * self.args.gradient_accumulation_steps)
        return loss.detach()


class TwoModes(torch.optim.SGD):
    """An optimizer with other weights for evaluation, as the `schedule_free` ones have them."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        for group in self.param_groups:
            for one in group["params"]:
                mean = self.state[one].setdefault("mean", one.detach().clone())
                mean.lerp_(one.detach(), 0.1)

    def change(self, is_training: bool) -> None:
        """Have the weights for it."""
        for group in self.param_groups:
            if group.get("is_training", False) != is_training:
                for one in group["params"]:
                    if "mean" in self.state[one]:
                        other = self.state[one]["mean"].clone()
                        self.state[one]["mean"].copy_(one.detach())
                        one.data.copy_(other)
            group["is_training"] = is_training

    def train(self) -> None:
        """Have the weights that are trained."""
        self.change(True)

    def eval(self) -> None:
        """Have those that are measured and saved."""
        self.change(False)


kind: Any = ElasticTrainer
collator: Any = DataCollatorWithPadding(tokenizer)
more: dict[str, Any] = {}
if variant == "best":
    options: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 3}
    options |= {"save_total_limit": 2, "load_best_model_at_end": True, "metric_for_best_model": "accuracy"}
    options |= {"lr_scheduler_type": "cosine", "warmup_steps": 2, "label_smoothing_factor": 0.1}
    more = {"callbacks": [EarlyStoppingCallback(early_stopping_patience=2)]}
elif variant == "own":
    kind = WeightedTrainer
    options = {"gradient_checkpointing": True, "eval_strategy": "epoch", "gradient_accumulation_steps": 2}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    more = {"optimizers": (optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5))}
elif variant == "unlogged":
    kind = WeightedTrainer
    options = {"logging_strategy": "no", "save_strategy": "steps", "save_steps": 5}
elif variant == "masked":
    model = BertForMaskedLM(model.config)
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3)
    options = {"train_sampling_strategy": "group_by_length", "eval_strategy": "epoch", "save_strategy": "epoch"}
    options |= {"gradient_accumulation_steps": 2}
elif variant == "modes":
    options = {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 4}
    steps = TwoModes(model.parameters(), lr=0.05, momentum=0.9)
    more = {"optimizers": (steps, torch.optim.lr_scheduler.LambdaLR(steps, lambda step: 1.0))}
elif variant == "half":
    model = model.to(torch.bfloat16)  # its loss is of that type too
    options = {"logging_steps": 5}
elif variant == "grouped":
    options = {"train_sampling_strategy": "group_by_length", "eval_strategy": "steps", "eval_steps": 3}
elif variant == "overridden":
    kind = HandmadeTrainer
    options = {"gradient_accumulation_steps": 2}
else:
    options = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps", "eval_steps": 2}
    options |= {"neftune_noise_alpha": 5.0, "eval_on_start": True, "dataloader_drop_last": True, "weight_decay": 0.1}
amounts: dict[str, Any] = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "num_train_epochs": 4}
amounts |= {"learning_rate": 1e-2, "logging_steps": 2}
quiet = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "output_dir": "out", "save_strategy": "no"}
trainer = kind(
    model=model,
    args=TrainingArguments(**quiet | amounts | options),
    train_dataset=[make_sample(number) for number in range(53)],
    eval_dataset=[make_sample(number) for number in range(100, 121)],
    data_collator=collator,
    compute_metrics=measure,
    **more,
)
trainer.train()
if variant == "unlogged":  # what a checkpoint has of the history counts too
    saved = Path("out", "checkpoint-5", "trainer_state.json").read_text()
    trainer.state.log_history += json.loads(saved)["log_history"]
trainer.evaluate()
print_result(trainer, trainer.predict(trainer.eval_dataset).predictions)
