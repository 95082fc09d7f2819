"""The house rules that a reader relies on: one meaning per name, rooms of a size that can be overlooked."""

import ast
import builtins
import re
from collections import abc, defaultdict
from pathlib import Path

from tests.conftest import LONG_FILES

import springtide

ROOT = Path(springtide.__file__).parent
TESTS = Path(__file__).parent
# every example is a folder to be copied, with files of the same names
MODULES = [path for path in sorted(ROOT.rglob("*.py")) if "examples" not in path.relative_to(ROOT).parts]
MOST_ENTRIES = 22
ALIAS = re.compile(r"[A-Z][a-z]\w*")
#: Names that two distant rooms each have for a thing of their own; nothing new may be added to them.
SHORT_NAMES = {
    "Address",
    "Arrivals",
    "Changes",
    "Choice",
    "Digest",
    "Exchange",
    "Floats",
    "Message",
    "Move",
    "Name",
    "Number",
    "Numbers",
    "Plan",
    "Row",
    "Scope",
    "Settings",
    "Span",
    "Step",
    "Tally",
    "Tensors",
}


def describe(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_file_name_stands_in_two_folders() -> None:
    found = defaultdict(list)
    for path in MODULES:
        if path.name not in ("__init__.py", "__main__.py") and path.parent.name != "cli":
            found[path.name].append(describe(path))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def make_singular(stem: str) -> str:
    """A name without the mark of a plural."""
    return f"{stem[:-3]}y" if stem.endswith("ies") else stem.removesuffix("s")


def test_no_two_files_differ_by_a_plural_alone() -> None:
    found = defaultdict(set)
    for path in MODULES:
        if path.stem not in ("__init__", "__main__") and path.parent.name != "cli":
            found[make_singular(path.stem)].add(describe(path))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_no_file_and_folder_beside_it_differ_by_a_plural_alone() -> None:
    folders = {path.parent for path in MODULES}
    twins = [
        f"{describe(path)}, {describe(folder)}"
        for path in MODULES
        for folder in folders
        if folder.parent == path.parent and make_singular(folder.name) == make_singular(path.stem)
    ]
    assert twins == []


def list_aliases(tree: ast.Module) -> list[tuple[str, str]]:
    """The names of types that a module makes by an assignment, with what they stand for; type variables are not."""
    made = [(one.targets[0], one.value) for one in tree.body if isinstance(one, ast.Assign)]
    made += [(one.target, one.value) for one in tree.body if isinstance(one, ast.AnnAssign) and one.value is not None]
    return [
        (target.id, ast.unparse(value))
        for target, value in made
        if isinstance(target, ast.Name) and ALIAS.fullmatch(target.id) and "TypeVar" not in ast.unparse(value)
    ]


def test_no_alias_has_the_name_of_another_or_of_a_class() -> None:
    found = defaultdict(set)
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, _ in list_aliases(tree):
            found[name].add(describe(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(describe(path))
    twice = {name: sorted(places) for name, places in found.items() if len(places) > 1}
    assert sorted(twice) == sorted(SHORT_NAMES), twice


def test_no_alias_hides_a_type_of_python() -> None:
    known = {*dir(abc), *dir(builtins)}
    hiding = [
        f"{describe(path)}: {name}"
        for path in MODULES
        for name, _ in list_aliases(ast.parse(path.read_text(encoding="utf-8")))
        if name in known
    ]
    assert hiding == []


def test_no_class_name_has_two_meanings() -> None:
    found = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(describe(path))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_a_folder_can_be_overlooked() -> None:
    folders = {path.parent for path in MODULES} - {ROOT / "cli"}
    sizes = {
        describe(folder): len([one for one in folder.iterdir() if one.name != "__pycache__"]) for folder in folders
    }
    assert {folder: size for folder, size in sizes.items() if size > MOST_ENTRIES} == {}


def test_files_to_be_begun_first_are_there() -> None:
    assert [name for name in LONG_FILES if not (TESTS.parent / name).is_file()] == []


def test_no_test_file_has_the_name_of_another() -> None:
    """pytest imports them by their names alone, and would run only one of the two."""
    names = [path.name for path in TESTS.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
