"""A tiny translator under Seq2SeqTrainer, evaluated by what it generates; the result is printed."""

from typing import Any

import torch
from tests.integrations.scripts.trainer_results import print_result
from tokenizers import Tokenizer, models
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerFast,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
)

import springtide
from springtide.integrations.hf import ElasticSeq2SeqTrainer

springtide.init(logical_workers=2)
torch.manual_seed(1)
vocabulary = {word: number for number, word in enumerate(["<pad>", "<eos>", *(f"w{number}" for number in range(40))])}
inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")
sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
special = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
model = T5ForConditionalGeneration(T5Config(vocab_size=42, dropout_rate=0.1, **sizes, **special))


def make_sample(number: int) -> dict[str, Any]:
    """A text of its own length, and the same backwards."""
    ids = torch.randint(2, 42, (3 + number % 7,), generator=torch.Generator().manual_seed(number)).tolist()
    return {"input_ids": [*ids, 1], "attention_mask": [1] * (len(ids) + 1), "labels": [*reversed(ids), 1]}


def measure(found: Any) -> dict[str, float]:
    """How much of what was generated is right."""
    size = min(found.predictions.shape[1], found.label_ids.shape[1])
    return {"right": float((found.predictions[:, :size] == found.label_ids[:, :size]).mean())}


trainer = ElasticSeq2SeqTrainer(
    model=model,
    args=Seq2SeqTrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        num_train_epochs=3,
        learning_rate=1e-2,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=3,
        save_strategy="steps",
        save_steps=3,
        load_best_model_at_end=True,
        metric_for_best_model="right",
        predict_with_generate=True,
        generation_max_length=9,
        generation_num_beams=2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=[make_sample(number) for number in range(53)],
    eval_dataset=[make_sample(number) for number in range(100, 121)],
    data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
    processing_class=tokenizer,
    compute_metrics=measure,
)
trainer.train()
trainer.evaluate()
print_result(trainer, trainer.predict(trainer.eval_dataset).predictions)
