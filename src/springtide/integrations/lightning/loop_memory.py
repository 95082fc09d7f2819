"""Where Lightning's loops and callbacks stand, kept in checkpoints and handed to processes that join."""

import copy
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loops.loop import _Loop
from lightning.pytorch.trainer import call

FLAGS = ("_restarting", "_loaded_from_state_dict", "_resuming_from_checkpoint", "_restart_stage")


class LoopMemory:
    """A Trainer's progress with the two methods of `run.keep`."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """Progress of the loops, and what callbacks export."""
        return {"loops": self.trainer.fit_loop.state_dict(), "callbacks": call._call_callbacks_state_dict(self.trainer)}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Let the loops stand there: before they run as restarted ones, later as those that they are."""
        loop = self.trainer.fit_loop
        running = loop.epoch_progress.current.started > 0
        flags = [(one, {name: getattr(one, name) for name in FLAGS if hasattr(one, name)}) for one in list_loops(loop)]
        loop.load_state_dict(copy.deepcopy(saved["loops"]))
        if running:
            for one, values in flags:
                vars(one).update(values)
        else:
            loop.update_restart_stage()
        self.go_on_in_folders(saved["callbacks"])
        call._call_callbacks_load_state_dict(self.trainer, {"callbacks": copy.deepcopy(saved["callbacks"])})

    def go_on_in_folders(self, states: dict[str, Any]) -> None:
        """Let callbacks save where they did: in another folder, as of a logger's next version, they forget the best."""
        for callback in self.trainer.callbacks:
            folder = states.get(callback.state_key, {}).get("dirpath")
            if isinstance(callback, ModelCheckpoint) and folder is not None and Path(folder).is_dir():
                callback.dirpath = folder


def list_loops(loop: Any) -> list[Any]:
    """A loop and all inside of it."""
    return [loop, *(one for child in vars(loop).values() if isinstance(child, _Loop) for one in list_loops(child))]
