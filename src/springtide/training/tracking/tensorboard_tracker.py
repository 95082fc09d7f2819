"""TensorBoard: event files in a folder of the run under `tensorboard` of the job's output, one per writing process."""

from collections.abc import Sequence
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from springtide.training.tracking.metric_journal import LoggedMetrics
from springtide.training.tracking.trackers import TrackerContent

ALL = {SCALARS: 0}
#: How much of a run's id is its name.
SHOWN_DIGITS = 8


class TensorboardRun:
    """A folder of event files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer: EventFileWriter | None = None

    def find_content(self) -> TrackerContent:
        """What whole records say; the reader leaves out one that a kill has cut short."""
        if not self.folder.exists():
            return TrackerContent()
        found = EventAccumulator(str(self.folder), size_guidance=ALL).Reload()
        return TrackerContent({name: found.Scalars(name)[-1].step for name in found.Tags()[SCALARS]})

    def send(self, lines: Sequence[LoggedMetrics]) -> None:
        """Write events and have them in the file."""
        if self.writer is None:
            self.writer = EventFileWriter(str(self.folder))
        for line in lines:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in line.metrics.items()]
            self.writer.add_event(Event(wall_time=line.at_s, step=line.step, summary=Summary(value=values)))
        self.writer.flush()

    def close(self, is_finished: bool) -> None:
        """End the file."""
        if self.writer is not None:
            self.writer.close()


def open_run(run: str, folder: Path) -> TensorboardRun:
    """The run's folder."""
    return TensorboardRun(folder / "tensorboard" / run[:SHOWN_DIGITS])
