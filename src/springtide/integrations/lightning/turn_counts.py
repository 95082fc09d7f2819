"""Lightning's counts of what an update does, which every turn changes and which must change once per update."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import torch


class TurnCounts:
    """Something that counts during the turns of a step: each turn leaves it as it was, all count once."""

    def __init__(self, progress: Any) -> None:
        self.progress = progress
        self.before = self.after = progress.state_dict()

    def put_back(self) -> None:
        """After a turn: leave alone what all logical workers have in common."""
        self.after = self.progress.state_dict()
        self.progress.load_state_dict(self.before)

    def count(self) -> None:
        """After all turns: count what each of them has."""
        self.progress.load_state_dict(self.after)


class LoopProgress:
    """One of Lightning's progresses, which are small objects full of integers; its own copy of one takes 70 us."""

    def __init__(self, progress: Any) -> None:
        self.trackers = list(list_trackers(progress))

    def state_dict(self) -> list[dict[str, Any]]:
        """All integers."""
        return [dict(vars(one)) for one in self.trackers]

    def load_state_dict(self, saved: list[dict[str, Any]]) -> None:
        """Put them back."""
        for one, values in zip(self.trackers, saved, strict=True):
            vars(one).update(values)


def list_trackers(progress: Any) -> Iterator[Any]:
    """The objects in a progress that have no others in them."""
    parts = [one for one in vars(progress).values() if is_dataclass(one)]
    if not parts:
        yield progress
    for part in parts:
        yield from list_trackers(part)


def copy_rate(value: Any) -> Any:
    """A value of a parameter group that stays as it is: rates that are tensors are changed in place."""
    return value.clone() if isinstance(value, torch.Tensor) else value


class Schedules:
    """Schedules and the rates that they set: in manual optimization each worker's `training_step` steps them."""

    def __init__(self, schedulers: list[Any]) -> None:
        self.schedulers = schedulers

    def state_dict(self) -> dict[str, Any]:
        """Where all of them stand."""
        return {
            "schedulers": [one.state_dict() for one in self.schedulers],
            "groups": [
                {name: copy_rate(value) for name, value in group.items() if name != "params"}
                for group in self.list_groups()
            ],
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Let them stand there."""
        for one, state in zip(self.schedulers, saved["schedulers"], strict=True):
            one.load_state_dict(dict(state))
        for group, values in zip(self.list_groups(), saved["groups"], strict=True):
            group.update({name: copy_rate(value) for name, value in values.items()})

    def list_groups(self) -> list[dict[str, Any]]:
        """The groups of parameters whose rates they set."""
        return [group for one in self.schedulers for group in one.optimizer.param_groups]
