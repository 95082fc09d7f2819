"""Which files of a job's folder its speed may depend on: the modules that the script imports and the files it names.

Read, never run. A module counts if the script or one of its modules imports it, or holds its name as a text; any other
file or folder counts if its path stands as a text in one of them, in the command or in a variable. So a stray note in
the folder does not make code unknown, and a changed configuration does. What a script reads under a name that it makes
up while it runs is not seen: for that there is `version:` in the job file.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from springtide.core.job_file import JobFile

MOST_NAME = 1000  # letters of a text that may be a path


def name_code(job: JobFile, owner: str, folder: Path) -> str:
    """What the code of a job is called where speeds are remembered: by its version, or by a hash of what it uses."""
    if job.version is not None:
        return f"version:{owner}:{job.script}:{job.version}"
    return hash_used(folder, job.script, (*job.words, *job.env.values(), *job.setup_lines))


@lru_cache(maxsize=1024)
def hash_used(folder: Path, script: str, words: tuple[str, ...]) -> str:
    """A hash of the files that a script uses; of a command that runs no script of the folder, of all of them."""
    start = place_inside(folder, folder / script) if script.endswith(".py") else None
    if start is not None and start.is_file():
        files = sorted(find_used(folder, start, words))
    else:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
    sign = hashlib.sha256()
    for path in files:
        sign.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return sign.hexdigest()


def find_used(folder: Path, script: Path, words: Iterable[str]) -> set[Path]:
    """The files that a script and its modules import or name."""
    used: set[Path] = set()
    waiting = [script, *find_named(folder, folder, words)]
    while waiting:
        path = waiting.pop()
        if path in used:
            continue
        used.add(path)
        if path.suffix == ".py":
            waiting += find_mentioned(folder, path)
    return used


def find_mentioned(folder: Path, module: Path) -> Iterator[Path]:
    """The files that one module imports or names; one that cannot be read mentions none."""
    try:
        tree = ast.parse(module.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    texts: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            texts += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = f"{'.' * max(0, node.level - 1)}{node.module or ''}"
            texts += [base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
    for place in {folder, module.parent}:
        yield from find_named(folder, place, texts)


def find_named(folder: Path, place: Path, texts: Iterable[str]) -> Iterator[Path]:
    """The files inside a folder that texts name, seen from a place in it: as modules, paths, or folders of files."""
    for text in texts:
        if not text.strip(" ./") or len(text) > MOST_NAME or "\0" in text or "\n" in text:
            continue
        dotted = text.replace(".", "/")
        found = [place / text.partition("=")[2], place / text, place / f"{dotted}.py", place / dotted / "__init__.py"]
        for path in found:
            yield from list_inside(folder, path)


def list_inside(folder: Path, path: Path) -> Iterator[Path]:
    """A file, or the files of a folder below `folder` but not that itself; nothing else."""
    inside = place_inside(folder, path)
    if inside is None:
        return
    if inside.is_file():
        yield inside
    elif inside.is_dir():
        yield from (one for one in inside.rglob("*") if one.is_file())


def place_inside(folder: Path, path: Path) -> Path | None:
    """A path below a folder, with nothing in it that leads up; None if it leads elsewhere, or can be no path at all."""
    try:
        root, inside = folder.resolve(), path.resolve()
        inside.lstat()
        return folder / inside.relative_to(root) if inside != root else None
    except (OSError, ValueError):
        return None
