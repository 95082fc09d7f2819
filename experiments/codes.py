"""The version of the code that a result depends on: a digest of some modules and of all of ours that they import.

A change to one policy makes only results of that policy stale. Imports are read from the text, those inside functions
too; modules named only in a table (policies, figures) are named by the caller.
"""

import ast
import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGES = {"springtide": "src/springtide", "experiments": "experiments"}
ROOT = Path(__file__).parents[1]


@cache
def digest_code(*modules: str) -> str:
    """A digest of these modules and everything of this package that they import, directly or not."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += find_imports(name)
    text = hashlib.sha256()
    for name in sorted(found):
        path = find_file(name)
        text.update(name.encode())
        text.update(path.read_bytes() if path is not None else b"")
    return text.hexdigest()


@cache
def find_imports(module: str) -> tuple[str, ...]:
    """The modules of this package that a module's text imports."""
    path = find_file(module)
    if path is None:
        return ()
    return tuple(name for name in _list_names(ast.parse(path.read_bytes())) if find_file(name) is not None)


def _list_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in PACKAGES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def find_file(module: str) -> Path | None:
    """The file of a module or package of ours; None if there is no such module."""
    package, *parts = module.split(".")
    if package not in PACKAGES:
        return None
    place = ROOT.joinpath(PACKAGES[package], *parts)
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file() and parts:
            return path
    return None


def reach_checkout() -> dict[str, str]:
    """The environment of a process that imports this package, which is not installed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
