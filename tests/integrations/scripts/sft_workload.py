"""TRL's SFTTrainer with LoRA over a tiny model, tokenizer and dataset made on the spot."""

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig

import springtide
from springtide.integrations.hf import ElasticSFTTrainer

springtide.init(logical_workers=4)
torch.manual_seed(1)
words = [f"w{number}" for number in range(60)]
names = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
vocabulary = {word: number for number, word in enumerate([*names.values(), *words])}
inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **names)
sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": len(vocabulary), "n_positions": 32}
model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=1, pad_token_id=0))
texts = [" ".join(words[(number * step) % 60] for step in range(1, 5 + number % 9)) for number in range(90)]
trainer = ElasticSFTTrainer(
    model=model,
    args=SFTConfig(
        output_dir="out",
        per_device_train_batch_size=4,
        max_steps=8,
        learning_rate=1e-2,
        logging_steps=3,
        bf16=False,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    ),
    train_dataset=Dataset.from_dict({"text": texts}),
    processing_class=tokenizer,
    peft_config=LoraConfig(r=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True),
)
trainer.train()
