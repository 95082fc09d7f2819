"""Nothing in the pure rooms reads a clock, draws a number or does I/O: no file in them has what that needs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import springtide

ROOT = Path(springtide.__file__).parent
EFFECTS = {"os", "time", "random", "secrets", "socket", "subprocess", "shutil", "tempfile", "logging", "sys"}
CALLS = {"open", "print", "input", "read_text", "write_text", "read_bytes", "write_bytes", "Path"}
#: Beside the decisions: compiling a planner when that pays, and importing the policy that a user names.
EDGES = {"policies/planning/compilation.py", "policies/registry.py"}


def list_effects(tree: ast.AST) -> Iterator[str]:
    """What of a module reaches beyond its arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.split(".")[0] in EFFECTS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in EFFECTS:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in CALLS:
                yield f"{name}()"


@pytest.mark.parametrize("room", ["core", "placement", "policies"])
def test_a_pure_room_has_no_effects(room: str) -> None:
    found = {
        name: effects
        for path in sorted((ROOT / room).rglob("*.py"))
        if (name := str(path.relative_to(ROOT))) not in EDGES
        and (effects := sorted(set(list_effects(ast.parse(path.read_text(encoding="utf-8"))))))
    }
    assert found == {}
