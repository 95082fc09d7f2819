"""W&B: a run of the id that the job keeps, in the project and the mode that W&B's own variables say.

Offline, each process that wrote leaves a folder in `wandb` of the job's output; `wandb sync` makes one run of them all.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import wandb
from wandb.proto.wandb_internal_pb2 import Record

from springtide.training.tracking.metric_journal import LoggedMetrics
from springtide.training.tracking.trackers import TrackerContent

#: An offline file is a LevelDB log after a head of its own: records in blocks, each part with a checksum, a length and
#: a kind (whole, first, middle or last part).
FILE_HEAD, BLOCK, PART_HEAD = 7, 1 << 15, 7
WHOLE, FIRST, LAST = 1, 2, 4


class WandbRun:
    """A run, open in this process."""

    def __init__(self, run: str, folder: Path) -> None:
        self.folder = folder
        offline = wandb.setup().settings.mode == "offline"
        self.content = self.read_offline(run) if offline else None
        options: Any = {} if offline else {"resume": "allow"}
        self.run = wandb.init(id=run, dir=str(folder), settings=wandb.Settings(console="off"), **options)

    def read_offline(self, run: str) -> TrackerContent:
        """What the folders of earlier processes have."""
        last: dict[str, int] = {}
        for file in sorted(self.folder.glob(f"wandb/offline-run-*-{run}/*.wandb")):
            for step, names in read_history(file.read_bytes()):
                last.update({name: max(step, last.get(name, -1)) for name in names})
        return TrackerContent(last)

    def find_content(self) -> TrackerContent:
        """What it has: online, W&B says with which step it goes on."""
        return self.content if self.content is not None else TrackerContent(reached=self.run.starting_step - 1)

    def send(self, lines: Sequence[LoggedMetrics]) -> None:
        """Log each line under its step; W&B joins those of one step."""
        for line in lines:
            self.run.log(dict(line.metrics), step=line.step)

    def close(self, is_finished: bool) -> None:
        """Have all on its way."""
        self.run.finish()


def open_run(run: str, folder: Path) -> WandbRun:
    """The run of this id."""
    return WandbRun(run, folder)


def read_history(data: bytes) -> Iterator[tuple[int, list[str]]]:
    """The step and the names of each row of an offline file."""
    for text in read_records(data):
        record = Record()
        record.ParseFromString(text)
        if record.HasField("history"):
            names = [item.key or item.nested_key[0] for item in record.history.item]
            yield record.history.step.num or read_step(record.history.item), names


def read_step(items: Any) -> int:
    """The step of a row, among its items."""
    return next((int(json.loads(item.value_json)) for item in items if "_step" in (item.key, *item.nested_key)), 0)


def read_records(data: bytes) -> Iterator[bytes]:
    """The whole records of an offline file, up to where a kill has cut it."""
    place, parts = FILE_HEAD, b""
    while place + PART_HEAD <= len(data):
        left = BLOCK - place % BLOCK
        if left < PART_HEAD:
            place += left
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        part = data[place + PART_HEAD : place + PART_HEAD + length]
        if kind == 0 or len(part) < length:
            return
        parts = part if kind in (WHOLE, FIRST) else parts + part
        place += PART_HEAD + length
        if kind in (WHOLE, LAST):
            yield parts
