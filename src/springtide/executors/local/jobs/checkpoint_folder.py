"""The folder of a job's checkpoints as the agent sees it: which is the newest, how large it is, whether it is new.

Reads names, sizes and the hash of the weights, as the job's user; what else a checkpoint holds is the business of
`training.checkpoints`.
"""

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from springtide.core.checkpoint_names import parse_name
from springtide.executors.local.as_user import do_as, do_within

WEIGHTS = "model.safetensors"
MOST_MANIFEST_BYTES = 1 << 20
MOST_TOLD_BYTES = 1 << 50
#: How long a folder may take to answer: now and then, and once, for what is told of the end of a job.
LOOK_S, READ_S = 5.0, 15.0
#: After a folder has not answered, how long it is left alone: twice as long each time.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 640.0
SHA256 = re.compile("[0-9a-f]{64}")


class CheckpointFolder:
    """The checkpoints of one job, and the newest of them that was seen."""

    def __init__(self, folder: Path, user: str | None = None) -> None:
        self.folder = folder
        self.user = user
        self.seen = -1
        #: Where it has not answered: when it is asked next, and how long after that if it is in vain.
        self.asked_s, self.pause_s = 0.0, FIRST_PAUSE_S

    def find_newest(self) -> Path | None:
        """The newest whole checkpoint: their names tell, and the manifest is written last. No folder holds none."""
        try:
            listed = os.listdir(self.folder)
        except FileNotFoundError:
            return None
        named = [(name, self.folder / one) for one in listed if (name := parse_name(one)) is not None]
        whole = [(name, path) for name, path in named if os.path.exists(path / "manifest.json")]
        return max(whole)[1] if whole else None

    def read_newest(self) -> list[int]:
        """The step and the bytes of the newest checkpoint; -1 and 0 if there is none."""
        newest = self.find_newest()
        if newest is None:
            return [-1, 0]
        name, size = parse_name(newest.name), 0
        assert name is not None, "it was found by its name"
        with contextlib.suppress(OSError):
            size = sum(file.stat(follow_symlinks=False).st_size for file in os.scandir(newest))
        return [name.step, max(size, read_told_bytes(newest / "manifest.json"))]

    def look(self) -> list[int]:
        """What `read_newest` finds, as the job's user.

        OSError if the folder cannot be read; TimeoutError, which is one, if it does not answer. Who asks waits for it
        while others wait for him, so one that did not answer is left alone for a while.
        """
        if time.monotonic() < self.asked_s:
            raise TimeoutError(0, "it did not answer a moment ago")
        try:
            step, size = self.do(self.read_newest, LOOK_S)
        except KeyError:
            raise OSError(0, f"there is no user {self.user}") from None
        except TimeoutError:
            self.asked_s = time.monotonic() + self.pause_s
            self.pause_s = min(2 * self.pause_s, LONGEST_PAUSE_S)
            raise
        self.pause_s = FIRST_PAUSE_S
        return [step, size]

    def do(self, work: Callable[[], Any], patience_s: float) -> Any:
        """What `work` returns as the job's user; TimeoutError if that takes too long."""
        return do_within(work, patience_s) if self.user is None else do_as(self.user, work, patience_s)

    def find_step(self) -> int:
        """The step of the newest checkpoint; -1 if there is none. Raises as `look` does."""
        return self.look()[0]

    def find_saved(self, said: int) -> int:
        """The step of the newest checkpoint, -1 if there is none.

        Of a folder that does not tell now it is that of the newest ever seen, or what was said to be saved.
        """
        try:
            return self.find_step()
        except OSError:
            return max(self.seen, said)

    def measure(self) -> int:
        """The bytes of the newest checkpoint; 0 if there is none, or the folder does not tell."""
        try:
            return self.look()[1]
        except OSError:
            return 0

    def find_weights(self) -> str:
        """The hash of the weights in the newest checkpoint, as its manifest says; empty if there is none."""
        try:
            weights = self.do(self.read_weights, READ_S)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return ""
        return weights if isinstance(weights, str) and SHA256.fullmatch(weights) else ""

    def read_weights(self) -> object:
        """What the newest manifest says is the hash of the weights."""
        newest = self.find_newest()
        return "" if newest is None else json.loads(read_plain(newest / "manifest.json"))["files"][WEIGHTS]["sha256"]

    def find_new(self) -> int | None:
        """The step of a checkpoint newer than any seen before; None if there is none, or the folder does not tell."""
        step = self.find_saved(-1)
        if step <= self.seen:
            return None
        self.seen = step
        return step


def read_told_bytes(manifest: Path) -> int:
    """How large a manifest says that its checkpoint is, which may lie in object storage; 0 if it does not say."""
    try:
        sizes = [int(file["bytes"]) for file in json.loads(read_plain(manifest))["files"].values()]
        return sum(size for size in sizes if 0 <= size < MOST_TOLD_BYTES)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return 0


def read_plain(path: Path) -> bytes:
    """The content of a small regular file that others may have put there: no link is followed, no pipe waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is no regular file")
        return file.read(MOST_MANIFEST_BYTES)
