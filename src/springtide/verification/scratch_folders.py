"""A folder of its own for every run of a script, so that what one run writes no other run finds.

A run works in a mirror of the folder it was started in: files are copied; files that are large, folders whose names
begin with a dot, virtual environments, and what is beyond a budget are linked. What is linked is shared, so a large
file that a run has written to is found and said. HOME is a folder of links to the real one's entries, TMPDIR is new.
"""

import os
import shutil
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from springtide.errors import TrainingError

LARGE_BYTES = 16 << 20
MOST_BYTES = 256 << 20
MOST_FILES = 5_000
SKIPPED = ("__pycache__",)


@dataclass(frozen=True, slots=True)
class SharedPath:
    """A path that runs share because it was linked, as it was before they ran."""

    path: Path
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where one run works: its copy of the folder, a home and a temporary folder, and what it shares with others."""

    home: Path
    temporary: Path
    #: Real folders and their copies; the first is the one that the run works in.
    copies: Mapping[Path, Path]
    shared: tuple[SharedPath, ...]

    @property
    def folder(self) -> Path:
        """The folder to work in."""
        return next(iter(self.copies.values()))

    def variables(self) -> dict[str, str]:
        """The environment variables that lead a run here."""
        return {"HOME": str(self.home), "TMPDIR": str(self.temporary), "PWD": str(self.folder)}

    def place(self, path: Path) -> Path:
        """Where a path of the real folders is here; a path outside of them is where it is."""
        real = path.resolve()
        copies = (copy / real.relative_to(source) for source, copy in self.copies.items() if is_within(real, source))
        return next(copies, real)

    def check(self) -> None:
        """Raise when a run has written to a file that other runs see."""
        for one in self.shared:
            if stat_shared(one.path) != one:
                raise TrainingError(
                    f"the script has written to {one.path}, which its runs share because it is too large to be copied; "
                    "what one run leaves there another would find. Let it write elsewhere, or move the file away"
                )


def make_scratch(place: Path, sources: Sequence[Path], environ: Mapping[str, str]) -> Scratch:
    """A new scratch under `place` for a run that was to work in the first of these folders and to use the others."""
    home, temporary = place / "home", place / "tmp"
    for made in (home, temporary):
        made.mkdir(parents=True)
    if environ.get("HOME") and Path(environ["HOME"]).is_dir():
        for entry in sorted(Path(environ["HOME"]).iterdir()):
            (home / entry.name).symlink_to(entry)
    copies: dict[Path, Path] = {}
    shared: list[SharedPath] = []
    for source in sources:
        if not any(is_within(source, held) for held in copies):
            copies[source.resolve()] = copy = place / f"work{len(copies) or ''}"
            copy.mkdir()
            shared += TreeMirror(source.resolve(), copy).copy()
    return Scratch(home, temporary, copies, tuple(shared))


class TreeMirror:
    """A tree being copied, nearest folders first, until the budget is used up; the rest is linked."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source = source
        self.target = target
        self.files_left, self.bytes_left = MOST_FILES, MOST_BYTES
        self.waiting = deque([(source, target)])
        #: What was linked although a script might write there.
        self.shared: list[SharedPath] = []

    def copy(self) -> tuple[SharedPath, ...]:
        """Copy it all, and return what is shared."""
        while self.waiting:
            here, there = self.waiting.popleft()
            for entry in sorted(os.scandir(here), key=lambda one: one.name):
                self.take(entry, there / entry.name)
        return tuple(self.shared)

    def take(self, entry: os.DirEntry[str], copy: Path) -> None:
        """Copy or link one entry of a folder; what is neither file nor folder nor link is left out."""
        path = Path(entry.path)
        if entry.is_symlink():
            copy.symlink_to(follow_link(path, self.source))
        elif entry.is_dir():
            self.take_folder(path, copy)
        elif entry.is_file():
            self.take_file(path, copy, entry.stat().st_size)

    def take_folder(self, path: Path, copy: Path) -> None:
        """Make a folder and let its entries wait their turn, or link it as a whole."""
        if path.name in SKIPPED or is_within(self.target, path):
            return
        if is_apart(path) or not os.access(path, os.R_OK | os.X_OK):
            copy.symlink_to(path)
        elif self.files_left <= 0:
            self.share(path, copy)
        else:
            copy.mkdir()
            self.waiting.append((path, copy))

    def take_file(self, path: Path, copy: Path, size: int) -> None:
        """Copy a file that is small enough, and link any other."""
        if size > min(LARGE_BYTES, self.bytes_left) or self.files_left <= 0 or not os.access(path, os.R_OK):
            self.share(path, copy)
            return
        shutil.copy2(path, copy)
        self.files_left -= 1
        self.bytes_left -= size

    def share(self, path: Path, copy: Path) -> None:
        """Link a path, and remember how it is."""
        copy.symlink_to(path)
        self.shared.append(stat_shared(path))


def is_within(inner: Path, outer: Path) -> bool:
    """Whether a path lies in a folder, or is it."""
    return inner.resolve().is_relative_to(outer.resolve())


def is_apart(folder: Path) -> bool:
    """Whether a folder holds no files of a script's own: hidden, or a virtual environment."""
    return folder.name.startswith(".") or (folder / "pyvenv.cfg").exists()


def follow_link(link: Path, source: Path) -> Path:
    """What a link in a mirror is to point at: inside the tree the same words, outside of it the real place."""
    words = Path(os.readlink(link))
    inside = not words.is_absolute() and is_within(link.parent / words, source)
    return words if inside else link.parent / words


def stat_shared(path: Path) -> SharedPath:
    """A linked path as it is now."""
    try:
        found = path.stat()
    except OSError:
        return SharedPath(path, -1, -1)
    return SharedPath(path, found.st_size, found.st_mtime_ns)
