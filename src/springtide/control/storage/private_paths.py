"""Files below a folder that others can write in: opened and removed part by part, so that no link leads elsewhere.

A job's processes own what lies in their folders, and may put a link there, or swap a folder for one, at any moment.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from springtide.executors.held_folders import LIST, closing, descend, open_regular


@contextmanager
def open_folder(root: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """The descriptor of a folder below a root that is ours; OSError where a part is missing or a link."""
    with closing(descend(os.open(root, LIST), parts)) as folder:
        yield folder


def open_plain(root: Path, path: Path) -> BinaryIO:
    """A regular file below a root, to read; OSError if it is anything else, or a link is on the way."""
    *folders, name = path.relative_to(root).parts
    with open_folder(root, tuple(folders)) as folder:
        return open(open_regular(folder, name), "rb")


def list_inside(root: Path, path: Path) -> dict[str, bool]:
    """The names in a folder below a root, each with whether it is a folder; none where a link is on the way."""
    try:
        with open_folder(root, path.relative_to(root).parts) as folder, os.scandir(folder) as entries:
            return dict(sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries))
    except OSError:
        return {}


def remove(root: Path, path: Path) -> None:
    """Remove a file, a link or a folder below a root, as far as that is possible; what is gone is gone."""
    *folders, name = path.relative_to(root).parts
    try:
        with open_folder(root, tuple(folders)) as folder:
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
    except OSError:
        return
