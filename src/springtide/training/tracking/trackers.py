"""The trackers by name, and what is asked of each: what it has, to take more, to end.

A tracker lives in a process of its own (`feed_main`). What it has already it is asked itself, so nothing is sent twice
and nothing is left out, whenever it or the training was killed.
"""

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Protocol

from springtide.errors import JobError
from springtide.training.settings import NO_TRACKERS
from springtide.training.tracking.metric_journal import LoggedMetrics

#: The package that each tracker needs.
PACKAGES = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}


@dataclass(frozen=True, slots=True)
class TrackerContent:
    """What a tracker has: the last step of each name, or one that all of them have reached."""

    last: Mapping[str, int] = field(default_factory=dict)
    reached: int = -1

    def find_missing(self, line: LoggedMetrics) -> LoggedMetrics | None:
        """What of a line it does not have."""
        metrics = {
            name: value
            for name, value in line.metrics.items()
            if line.step > max(self.reached, self.last.get(name, -1))
        }
        return LoggedMetrics(line.step, line.at_s, metrics) if metrics else None


class Tracker(Protocol):
    """An open run in a tracker."""

    def find_content(self) -> TrackerContent:
        """What it has of this run."""

    def send(self, lines: Sequence[LoggedMetrics]) -> None:
        """Add lines, in the order of the steps of each name."""

    def close(self, is_finished: bool) -> None:
        """Have all on its way; the run has come to its end, or goes on in another process."""


def open_tracker(name: str, run: str, folder: Path) -> Tracker:
    """The run of this id in a tracker, which is there or is made; its files, if it has any, go into the folder."""
    module = import_module(f"springtide.training.tracking.{name}_tracker")
    tracker: Tracker = module.open_run(run, folder)
    return tracker


def choose_trackers(track: str | Iterable[str], setting: str) -> str:
    """The trackers of a run, joined by commas: the environment's if it names some, else the script's."""
    asked = [track] if isinstance(track, str) else list(track)
    names = [name for name in (setting.split(",") if setting else asked) if name]
    if names == [NO_TRACKERS]:
        return ""
    for name in names:
        check_tracker(name)
    return ",".join(dict.fromkeys(names))


def check_tracker(name: str) -> None:
    """Refuse a tracker that is not known or not installed, before a step is taken."""
    if name not in PACKAGES:
        raise JobError(f"track={name!r} is no tracker that springtide knows; choose among {', '.join(PACKAGES)}")
    found = importlib.util.find_spec(PACKAGES[name])
    if found is None or found.origin is None:  # a folder of that name, as trackers leave them, is no package
        raise JobError(f"track={name!r} needs a package that is not installed: pip install 'springtide[{name}]'")
