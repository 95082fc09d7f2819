"""`benchmarks.constants` lists every tuned number of the policy: a new one belongs there, or here with why not."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

from benchmarks.constants import CONSTANTS, list_readers, replaced

import springtide
from springtide.policies.planning import admission, open_answers

ROOMS = ("policies/springtide.py", "policies/planning", "policies/pools", "placement")
# numbers that nobody tuned: tolerances of rounding, marks, and sizes that change the time of deciding and nothing else
UNTUNED = {
    "AFTER_STARTS": "a rank behind all others",
    "FEW_ROWS": "which of two ways to the same result is faster",
    "GUARD_S": "half the tolerance within which a deadline is met",
    "KINDS": "which of two ways to the same result is faster",
    "LEAST_SPAN_S": "rounding",
    "LOADED_S": "when it is said that the planner is being compiled",
    "MARGIN_S": "rounding",
    "NO_FIT": "a rank behind all others",
    "PAUSED": "how many jobs pause where devices change hands",
    "ROUNDING": "rounding",
    "ROUNDING_S": "rounding",
    "SIZES": "for how many sizes is known where to begin to look",
    "_LOOSE": "a rank behind compact places",
    "_MOST_RANKS": "how much is remembered of what can be computed again",
}


def test_every_number_of_the_policy_is_listed() -> None:
    listed = {constant.name for constant in CONSTANTS}
    found = {name for path in list_modules() for name in list_numbers(path)}
    assert found - listed - UNTUNED.keys() == set()
    assert UNTUNED.keys() <= found


def test_every_listed_constant_is_in_the_code() -> None:
    modules = {constant: inspect.getfile(import_module(constant.module)) for constant in CONSTANTS}
    gone = [constant.name for constant, path in modules.items() if constant.name not in list_numbers(Path(path))]
    assert not gone


def test_another_value_is_seen_by_every_module_that_has_the_constant() -> None:
    (thrift,) = [constant for constant in CONSTANTS if constant.name == "THRIFT"]
    readers = [import_module(name) for name in list_readers(thrift)]
    assert admission in readers and open_answers in readers
    with replaced(thrift, 9.0):
        assert {module.THRIFT for module in readers} == {9.0}
    assert {module.THRIFT for module in readers} == {thrift.value}


def list_modules() -> list[Path]:
    """The modules that decide for `springtide`."""
    root = Path(springtide.__file__).parent
    rooms = [root / room for room in ROOMS]
    return [path for room in rooms for path in (sorted(room.glob("*.py")) if room.is_dir() else [room])]


def list_numbers(path: Path) -> list[str]:
    """The names in capitals that a module gives to numbers, or to several of them."""
    names = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names += [name for name, value in pair_up(target, node.value) if name.isupper() and is_number(value)]
    return names


def pair_up(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    """Each name of an assignment with what it gets."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return [pair for one, part in zip(target.elts, value.elts, strict=True) for pair in pair_up(one, part)]
    return [(target.id, value)] if isinstance(target, ast.Name) else []


def is_number(value: ast.expr) -> bool:
    """Whether an expression is a number, made of some, or several of them."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    if isinstance(value, ast.Name):
        return value.id == "inf"
    if isinstance(value, ast.UnaryOp):
        return is_number(value.operand)
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    return isinstance(value, ast.Tuple) and bool(value.elts) and all(map(is_number, value.elts))
