"""Where Lightning's loops and callbacks stand, kept in checkpoints and handed to processes that join."""

import copy
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint, Timer
from lightning.pytorch.loops.loop import _Loop
from lightning.pytorch.trainer import call

FLAGS = ("_restarting", "_loaded_from_state_dict", "_resuming_from_checkpoint", "_restart_stage")


class LoopMemory:
    """A Trainer's progress with the two methods of `run.keep`."""

    def __init__(self, trainer: Any, run: Any) -> None:
        self.trainer = trainer
        self.run = run

    def state_dict(self) -> dict[str, Any]:
        """Progress of the loops, and what callbacks and data export."""
        data = self.trainer.datamodule
        return {
            "loops": self.trainer.fit_loop.state_dict(),
            "callbacks": self.find_states(),
            "data": {} if data is None else data.state_dict(),
        }

    def find_states(self) -> dict[str, Any]:
        """What callbacks export; but not a Timer's time, which passes in turns too and is each process's own."""
        timed = {one.state_key for one in self.trainer.callbacks if isinstance(one, Timer)}
        states = call._call_callbacks_state_dict(self.trainer)
        return {key: state for key, state in states.items() if key not in timed}

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
        if saved.get("data"):
            self.trainer.datamodule.load_state_dict(copy.deepcopy(saved["data"]))
        self.go_on_in_folders(saved["callbacks"])
        call._call_callbacks_load_state_dict(self.trainer, {"callbacks": copy.deepcopy(saved["callbacks"])})

    def share_folders(self) -> None:
        """Let all callbacks save where the first process's do: each has found a version of its logger's by itself."""
        for callback in list_saving(self.trainer):
            callback.dirpath = self.run.exchange([callback.dirpath])[0][0]

    def go_on_in_folders(self, states: dict[str, Any]) -> None:
        """Let callbacks save where they did: in another folder, as of a logger's next version, they forget the best.

        Where nothing was saved yet there is no such folder, and all go on in the first process's.
        """
        for callback in list_saving(self.trainer):
            folder = states.get(callback.state_key, {}).get("dirpath")
            if self.run.settings.joining:
                callback.dirpath = folder
            else:
                is_there = folder is not None and Path(folder).is_dir()
                callback.dirpath = self.run.exchange([folder if is_there else callback.dirpath])[0][0]


def list_saving(trainer: Any) -> list[ModelCheckpoint]:
    """The callbacks that save models."""
    return [one for one in trainer.callbacks if isinstance(one, ModelCheckpoint)]


def list_loops(loop: Any) -> list[Any]:
    """A loop and all inside of it."""
    return [loop, *(one for child in vars(loop).values() if isinstance(child, _Loop) for one in list_loops(child))]
