"""TRL's trainers over a tiny model, tokenizer and dataset made on the spot, with the options that a test asks for."""

import json
import sys
from typing import Any

import torch
import trl
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, PreTrainedTokenizerFast

import springtide
from springtide.integrations import hf

asked = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
kind, with_lora = asked.pop("kind", "SFT"), asked.pop("lora", True)
is_logging = asked.pop("logging", False)
springtide.init(logical_workers=4)
torch.manual_seed(1)
words = [f"w{number}" for number in range(60)]
names = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
vocabulary = {word: number for number, word in enumerate([*names.values(), *words])}
inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **names)
sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": len(vocabulary), "n_positions": 32}
config = GPT2Config(**sizes, bos_token_id=1, eos_token_id=1, pad_token_id=0, num_labels=1)


def make_text(number: int) -> str:
    """Words in an order that can be learned, some more and some fewer."""
    return " ".join(words[(number * step) % 60] for step in range(1, 5 + number % 9))


class LoggingTrainer(hf.ElasticSFTTrainer):
    """One that logs something of its own."""

    def compute_loss(self, model: Any, *given: Any, **named: Any) -> Any:
        if model.training:
            self.log({"own": 1.0})
        return super().compute_loss(model, *given, **named)


texts = [make_text(number) for number in range(90)]
columns = {"text": texts}
if kind != "SFT":
    prompts = {"prompt": [text[:2] for text in texts]} if kind == "DPO" else {}
    columns = {**prompts, "chosen": texts, "rejected": [make_text(number + 7) for number in range(90)]}
data = Dataset.from_dict(columns)
more: dict[str, Any] = {}
if with_lora:
    more["peft_config"] = LoraConfig(r=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True)
elif kind == "DPO":
    more["ref_model"] = GPT2LMHeadModel(config)
options = {
    "output_dir": "out",
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 4,
    "max_steps": 8,
    "learning_rate": 1e-2,
    "logging_steps": 3,
    "bf16": False,
    "use_cpu": True,
    "report_to": [],
    "save_strategy": "no",
    "disable_tqdm": True,
}
trainer = (LoggingTrainer if is_logging else getattr(hf, f"Elastic{kind}Trainer"))(
    model=(GPT2ForSequenceClassification if kind == "Reward" else GPT2LMHeadModel)(config),
    args=getattr(trl, f"{kind}Config")(**options | asked),
    train_dataset=data,
    eval_dataset=data.select(range(22)) if "eval_strategy" in asked else None,
    processing_class=tokenizer,
    **more,
)
trainer.train()
if is_logging:
    print("RESULT " + json.dumps(trainer.state.log_history), flush=True)
