"""Receipts of checkpoints in object storage, from the host that has them to the folder where the lead looks for them.

See `training.state.remote_checkpoints`: a process leaves a copy of each manifest in a folder. Where the lead does not
see that folder, its host passes them on.
"""

import contextlib
import shutil
from pathlib import Path

from springtide.core.checkpoint_names import CheckpointName, parse_name
from springtide.executors.local.jobs.checkpoint_folder import read_plain

MANIFEST = "manifest.json"


class ReceiptWatch:
    """A folder of receipts, and those in it that were passed on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.passed_on: set[CheckpointName] = set()

    def list_new(self) -> list[tuple[str, str]]:
        """Names and manifests of those that were not there at the last look, oldest first."""
        named = [(parse_name(path.parent.name), path) for path in self.folder.glob(f"step-*/{MANIFEST}")]
        fresh = sorted((name, path) for name, path in named if name is not None and name not in self.passed_on)
        found = []
        for name, path in fresh:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                found.append((str(name), read_plain(path).decode()))
                self.passed_on.add(name)
        return found


def keep_receipt(folder: Path, name: str, manifest: str, keep: int) -> None:
    """Write a receipt into a folder, whole or not at all, and remove the oldest of more than `keep`."""
    known = parse_name(name)
    if known is None:
        raise ValueError(f"a receipt of {name[:80]!r}, which is no checkpoint's name")
    kept = folder / str(known)
    kept.mkdir(parents=True, exist_ok=True)
    partial = folder / ".writing-receipt"
    partial.write_text(manifest)
    partial.replace(kept / MANIFEST)
    names = [parse_name(path.parent.name) for path in folder.glob(f"step-*/{MANIFEST}")]
    for old in sorted((one for one in names if one is not None), reverse=True)[max(1, keep) :]:
        shutil.rmtree(folder / str(old), ignore_errors=True)
