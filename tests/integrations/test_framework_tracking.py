"""What a Trainer logs, in a tracker; read with the tracker's own reader."""

import os
import subprocess
import sys
from pathlib import Path

from tests.integrations.installed import need

SCRIPT = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments
import springtide
from springtide.integrations.hf import ElasticTrainer

springtide.init(logical_workers=2, track="tensorboard")
sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 32, "n_positions": 8}
model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
data = [{"input_ids": torch.arange(8) + number, "labels": torch.arange(8) + number} for number in range(16)]
args = TrainingArguments(
    "out", use_cpu=True, max_steps=4, report_to=[], disable_tqdm=True, save_strategy="no", logging_steps=1
)
trainer = ElasticTrainer(model=model, args=args, train_dataset=data, eval_dataset=data)
trainer.train()
trainer.evaluate()
"""


def test_a_tracker_has_the_summary_and_the_evaluation_after_training(tmp_path: Path) -> None:
    """They came when the run had ended, and were in the journal alone."""
    need("transformers")
    need("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    curves: dict[str, list[int]] = {}
    for folder in sorted({file.parent for file in tmp_path.rglob("events.out.tfevents.*")}):
        events = EventAccumulator(str(folder)).Reload()
        for name in events.Tags()["scalars"]:
            curves.setdefault(name, []).extend(event.step for event in events.Scalars(name))
    assert curves["loss"] == [1, 2, 3, 4]
    assert curves["train_loss"] == curves["eval_loss"] == [4]
