"""The output folder of a run, copied to object storage: with the last step, and again when the script has ended.

The second time what the script wrote after its loop is sent: a report, a plot, a model of its own. It is done by
another process: an interpreter that ends starts no thread any more, and every store needs some.
"""

import atexit
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from springtide.errors import InputError, TrainingError
from springtide.training.settings import Settings

DOING = "copying the output"


class OutputCopy:
    """The copy of one folder, by this start of its job; `busy` tells whoever watches that it takes a while."""

    def __init__(
        self, folder: Path, url: str, generation: int, busy: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        self.folder = folder
        self.url = url
        self.generation = generation
        self.busy = busy
        #: What was sent; None before the last step.
        self.sent: dict[str, tuple[int, int]] | None = None
        atexit.register(self.send_rest)  # first, and so called last: after what the script has registered

    def send(self) -> None:
        """Copy the folder."""
        from springtide.objects.folder_copies import copy_folder, note_files  # not before a job asks for it
        from springtide.objects.object_store import ObjectStore

        self.sent = note_files(self.folder)
        with self.busy(DOING):
            try:
                copy_folder(self.folder, ObjectStore(self.url), self.generation)
            except (OSError, InputError) as error:
                raise TrainingError(f"the output could not be copied: {error}; it is in {self.folder}") from error

    def send_rest(self) -> None:
        """Copy what has changed since; the process fails if that cannot be done."""
        from springtide.objects.folder_copies import note_files

        if self.sent is None or self.sent == note_files(self.folder):
            return
        command = [sys.executable, "-m", "springtide.objects.folder_copies"]
        command += [str(self.folder), self.url, str(self.generation)]
        with self.busy(DOING):
            code = subprocess.run(command, check=False).returncode
        if code:
            print(f"error: what was written to {self.folder} after the last step could not be copied", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(TrainingError.exit_code)  # an interpreter that ends takes no other code


def open_copy(settings: Settings, busy: Callable[[str], AbstractContextManager[None]]) -> OutputCopy | None:
    """The copy that a run is to make, if it is to make one."""
    if settings.output_url is None or settings.output is None:
        return None
    return OutputCopy(settings.output, settings.output_url, settings.checkpoint_generation, busy)
