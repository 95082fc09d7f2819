"""What a Trainer knows between two steps, kept in checkpoints and handed to processes that join.

TrainerState, counts of the loss that is not logged yet, and the state of callbacks that can export it. All of it is the
same on every process. The flags of the Trainer's control are not in it: those of a step are cleared where the next
begins, and a Trainer that is told to stop leaves its loop before the boundary at which anything is kept.
"""

import dataclasses
import json
from typing import Any

from transformers.trainer_callback import ExportableState, TrainerState

#: Counts of the Trainer's own, which a process that joins would begin anew.
COUNTS = ("_total_loss_scalar", "_globalstep_last_logged", "_initial_global_step", "_initial_num_input_tokens_seen")
#: What is about the process, not about the training; states of callbacks are there on the one that saves, and how far
#: to train its arguments say, which may say more in a job that is started again.
OF_PROCESS = ("is_local_process_zero", "is_world_process_zero", "max_steps", "num_train_epochs", "stateful_callbacks")


class TrainerMemory:
    """A Trainer's state with the two methods of `run.keep`."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def list_callbacks(self) -> list[Any]:
        """The callbacks whose state can be exported, and the control, which exports none."""
        trainer = self.trainer
        return [
            one for one in (*trainer.callback_handler.callbacks, trainer.control) if isinstance(one, ExportableState)
        ]

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        state = {key: value for key, value in dataclasses.asdict(self.trainer.state).items() if key not in OF_PROCESS}
        return {
            "state": json.dumps(state),
            "callbacks": [json.dumps(one.state()["attributes"]) for one in self.list_callbacks()],
            "counts": {name: getattr(self.trainer, name, 0) for name in COUNTS},
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Make the Trainer what it was."""
        trainer = self.trainer
        known = {name: getattr(trainer.state, name) for name in OF_PROCESS}
        trainer.state = TrainerState(**{**json.loads(saved["state"]), **known})
        for one, text in zip(self.list_callbacks(), saved["callbacks"], strict=True):
            for name, value in json.loads(text).items():
                setattr(one, name, value)
        for name, value in saved["counts"].items():
            setattr(trainer, name, value)
