"""Steps of one framework on the ranks of torchrun, stock or ours, timed: `framework_steps.py FRAMEWORK [--stock]`.

Prints a line of JSON per rank: CPU and wall seconds per step after the first eight, in five of which a run looks at all
that is alive in the process, once in its life.
"""

import argparse
import json
import os
import time
import warnings
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import springtide

LENGTH, FIRST = 64, 8
warnings.simplefilter("ignore")


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Samples of random tokens."""

    def __init__(self, count: int) -> None:
        self.samples = torch.randint(0, 256, (count, LENGTH), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.samples[index], "labels": self.samples[index]}


class StepClock:
    """CPU and wall time from one step to the last."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.began: tuple[float, float] | None = None

    def tick(self, step: int) -> None:
        """Note the end of a step."""
        now = time.process_time(), time.perf_counter()
        if step == FIRST:
            self.began = now
        elif step == self.steps and self.began is not None:
            taken = [(end - begin) / (self.steps - FIRST) for begin, end in zip(self.began, now, strict=True)]
            print("\n" + json.dumps({"cpu_s": taken[0], "wall_s": taken[1]}), flush=True)


def train_hf(steps: int, stock: bool, ranks: int) -> None:
    """Hugging Face's Trainer."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    if not stock:
        from springtide.integrations.hf import ElasticTrainer

        springtide.init(logical_workers=ranks)
    clock = StepClock(steps)

    class Timing(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clock.tick(state.global_step)

    sizes = {"n_layer": 4, "n_head": 4, "n_embd": 128, "vocab_size": 256, "n_positions": LENGTH}
    options = {"output_dir": os.devnull + ".d", "save_strategy": "no", "report_to": [], "disable_tqdm": True}
    args = TrainingArguments(
        **options, use_cpu=True, max_steps=steps, per_device_train_batch_size=8, logging_strategy="no"
    )
    kind = Trainer if stock else ElasticTrainer
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    kind(model=model, args=args, train_dataset=Tokens(4096), callbacks=[Timing()]).train()


def train_lightning(steps: int, stock: bool, ranks: int) -> None:
    """Lightning's Trainer."""
    from lightning.pytorch import Callback, LightningModule, Trainer
    from transformers import GPT2Config, GPT2LMHeadModel

    if not stock:
        import springtide.integrations.lightning

        springtide.init(logical_workers=ranks)
    clock = StepClock(steps)

    class Timing(Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            clock.tick(trainer.global_step)

    class Language(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            sizes = {"n_layer": 4, "n_head": 4, "n_embd": 128, "vocab_size": 256, "n_positions": LENGTH}
            self.model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.model(**batch).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    strategy = "ddp" if stock else "springtide"
    trainer = Trainer(
        accelerator="cpu", devices=ranks, strategy=strategy, max_steps=steps, callbacks=[Timing()], **quiet
    )
    trainer.fit(Language(), DataLoader(Tokens(4096), batch_size=8, shuffle=True))


def train_accelerate(steps: int, stock: bool, ranks: int) -> None:
    """A loop with an Accelerator."""
    from accelerate import Accelerator
    from transformers import GPT2Config, GPT2LMHeadModel

    if not stock:
        from springtide.integrations.accelerate import ElasticAccelerator

        springtide.init(logical_workers=ranks)
    accelerator = Accelerator(cpu=True) if stock else ElasticAccelerator(cpu=True)
    sizes = {"n_layer": 4, "n_head": 4, "n_embd": 128, "vocab_size": 256, "n_positions": LENGTH}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Tokens(8 * ranks * steps), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    clock = StepClock(steps)
    for _ in range(1) if stock else accelerator.epochs(1):
        for number, step in enumerate(loader, 1) if stock else loader.enumerate(1):
            for batch in [step] if stock else step:
                accelerator.backward(model(**batch).loss)
            optimizer.step()
            optimizer.zero_grad()
            clock.tick(number)


def main() -> None:
    """Train as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=["hf", "lightning", "accelerate"])
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--steps", type=int, default=88)
    args = parser.parse_args()
    torch.set_num_threads(1)
    train = {"hf": train_hf, "lightning": train_lightning, "accelerate": train_accelerate}[args.framework]
    train(args.steps, args.stock, int(os.environ["WORLD_SIZE"]))
    if torch.distributed.is_initialized():  # who leaves first ends the others, some of them by an abort in gloo
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
