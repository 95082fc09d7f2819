"""A language model with Hugging Face's Trainer; the three lines that make it elastic are marked.

Submit it (`springtide submit job.yaml`), run it alone (`python train.py`) or on processes (`torchrun --nproc-per-node 2
train.py`), and prove it: `springtide verify train.py --steps 20`.
"""

import argparse

from model import Bytes, make_model
from transformers import TrainingArguments

import springtide  # 1
from springtide.integrations.hf import ElasticTrainer as Trainer  # 2: was `from transformers import Trainer`

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
asked = parser.parse_args()

springtide.init(logical_workers=4)  # 3: the ranks that torchrun would start
args = TrainingArguments(
    output_dir="outputs",
    per_device_train_batch_size=4,
    max_steps=asked.steps,
    learning_rate=3e-3,
    warmup_steps=10,
    logging_steps=20,
    eval_strategy="steps",
    eval_steps=100,
    save_steps=100,
    report_to=[],
    use_cpu=True,  # leave it out where there is a GPU
)
trainer = Trainer(model=make_model(), args=args, train_dataset=Bytes(0, 3200), eval_dataset=Bytes(3200, 3264))
trainer.train()
trainer.save_model("outputs/final")
