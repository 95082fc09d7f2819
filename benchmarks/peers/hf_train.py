"""The script for Hugging Face's Trainer, started by torchrun and started again by hand with what it has saved."""

import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from benchmarks.peers.workload import BATCH, FOLDER, SAVE_EVERY, STEPS, NumberedData, make_model, record, save_weights


class Wrapped(torch.nn.Module):
    """A model that returns its loss, as Trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_model()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": torch.nn.functional.mse_loss(self.inner(x), labels)}


class RecordingTrainer(Trainer):  # type: ignore[misc]
    """Notes samples and steps; it changes nothing else."""

    def training_step(self, model: torch.nn.Module, inputs: dict[str, torch.Tensor], *rest: object) -> torch.Tensor:
        numbers = inputs.pop("numbers")
        loss: torch.Tensor = super().training_step(model, inputs, *rest)
        record(self.state.global_step + 1, numbers)
        return loss


def collate(samples: list[tuple[torch.Tensor, torch.Tensor, int]]) -> dict[str, torch.Tensor]:
    """A batch as a dictionary."""
    x, labels, numbers = zip(*samples, strict=True)
    return {"x": torch.stack(x), "labels": torch.stack(labels), "numbers": torch.tensor(numbers)}


arguments = TrainingArguments(
    output_dir=str(FOLDER / "saved"),
    per_device_train_batch_size=BATCH,
    max_steps=STEPS,
    learning_rate=1e-2,
    lr_scheduler_type="constant",
    max_grad_norm=0.0,
    save_steps=SAVE_EVERY,
    logging_strategy="no",
    report_to="none",
    use_cpu=True,
    remove_unused_columns=False,
    disable_tqdm=True,
)
model = Wrapped()
trainer = RecordingTrainer(model, arguments, train_dataset=NumberedData(), data_collator=collate)
(FOLDER / "saved").mkdir(exist_ok=True)
trainer.train(resume_from_checkpoint=get_last_checkpoint(str(FOLDER / "saved")))
if trainer.is_world_process_zero():
    save_weights(model.inner)
