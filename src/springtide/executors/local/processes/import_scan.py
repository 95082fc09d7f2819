"""Which installed packages a script imports when it starts, found by reading it; nothing is run.

Only statements at the top level of the script and of the modules beside it count: those are imported in every
process, before anything else. Names count too (`from transformers import Trainer`): large packages import what is
behind a name when it is first asked for.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

#: In every fork server already, or nothing to import ahead.
KNOWN = frozenset({"torch", "springtide", "__future__"}) | frozenset(sys.stdlib_module_names)
#: Ours, but each imports a framework.
ADAPTERS = "springtide.integrations."


def find_imports(script: Path) -> tuple[str, ...]:
    """What a script imports of installed packages, in order, as `MODULE` or `MODULE:NAME,NAME`; empty if unreadable."""
    found: dict[str, None] = {}
    walked: set[Path] = set()
    waiting = [script]
    while waiting:
        file = waiting.pop(0)
        if file in walked:
            continue
        walked.add(file)
        for module, names in list_imports(file):
            root = module.split(".")[0]
            beside = find_beside(script.parent, root)
            if beside is not None:
                waiting.append(beside)
            elif root not in KNOWN or any(f"{module}.{name}".startswith(ADAPTERS) for name in names or ("",)):
                found[":".join([module, *filter(None, [",".join(names)])])] = None
    return tuple(found)


def list_imports(file: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The modules imported by the statements at the top level of a file, each with the names taken from it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from ((alias.name, ()) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            yield statement.module, tuple(alias.name for alias in statement.names if alias.name != "*")


def find_beside(folder: Path, root: str) -> Path | None:
    """The file of a module beside the script; such modules are the user's, and imported by each process itself."""
    for path in (folder / f"{root}.py", folder / root / "__init__.py"):
        if path.is_file():
            return path
    return folder / root if (folder / root).is_dir() else None
