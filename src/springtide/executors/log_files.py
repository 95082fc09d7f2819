"""How the output of a job lies on disk: a log per rank in files that rotate, when its bytes came, and notes on starts.

`rank-K.log` is the newest file of a rank, `rank-K.log.1` the one before it. Beside each lies `rank-K.times`: pairs of
a position in all that the rank ever wrote and the time at which what follows came. The first position in it is that of
the first byte of its file, so what was dropped is known too. `attempts.jsonl` notes each start, resize and end.
"""

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass

FILES = 12
FILE_BYTES = 10 << 20
NOTES = "attempts.jsonl"
LOG_NAME = re.compile(r"rank-(\d{1,6})\.log(?:\.(\d{1,3}))?")
STAMP = struct.Struct("<Qd")


@dataclass(frozen=True, slots=True)
class AttemptNote:
    """Something that happened to a job's processes: `probe` and `start` begin an attempt, `resize` and `end` do not."""

    kind: str
    attempt: int
    at_s: float
    step: int
    devices: tuple[str, ...] = ()
    reason: str = ""

    def write(self) -> bytes:
        """The note as a line."""
        return json.dumps(asdict(self)).encode() + b"\n"


def read_note(line: bytes) -> AttemptNote | None:
    """The note of a line; None where it is none."""
    try:
        noted = json.loads(line)
        return AttemptNote(
            kind=str(noted["kind"]),
            attempt=int(noted["attempt"]),
            at_s=float(noted["at_s"]),
            step=int(noted["step"]),
            devices=tuple(str(device) for device in noted["devices"]),
            reason=str(noted["reason"]),
        )
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def name_log(rank: int, age: int = 0) -> str:
    """The file of a rank's log; `age` counts the newer ones."""
    return f"rank-{rank}.log" + (f".{age}" if age else "")


def name_times(log: str) -> str:
    """The file with the times of a log file."""
    return log.replace(".log", ".times", 1)


def write_stamp(offset: int, at_s: float) -> bytes:
    """When the bytes from a place on came."""
    return STAMP.pack(offset, at_s)


def read_stamps(data: bytes) -> Iterator[tuple[int, float]]:
    """Places and times; what was cut off in the middle is left out."""
    return STAMP.iter_unpack(data[: len(data) - len(data) % STAMP.size])
