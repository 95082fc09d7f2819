"""What the sources of a user's callbacks, modules and trainers show: who steps an optimizer, what is set anew."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence

from springtide.training.state.script.loop_variables import is_own

OPTIMIZER = re.compile(r"(^|[._'\"\[])(optimizers?|optim)\b")
#: Methods that are called in every step, in which what is set is set anew.
STEPPING = frozenset(
    (
        "training_step",
        "forward",
        "compute_loss",
        "on_train_batch_start",
        "on_train_batch_end",
        "on_step_begin",
        "on_step_end",
    )
)


def read_source(kind: type) -> ast.AST | None:
    """The syntax tree of a class, where there is source to read."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return None


def steps_optimizer(kind: type) -> bool:
    """Whether a class has a line that steps an optimizer; not, where there is no source to read."""
    tree = read_source(kind)
    return tree is not None and any(is_optimizer_step(node) for node in ast.walk(tree))


def is_optimizer_step(node: ast.AST) -> bool:
    """Whether a piece of code is `<something of optimizer>.step(...)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "step":
        return False
    return OPTIMIZER.search(ast.unparse(node.func.value)) is not None


def is_set_anew(kind: type, attribute: str) -> bool:
    """Whether a class sets an attribute in every step, and reads it nowhere before it has set it in the same call.

    As `self.generated = self(z)`, of which a grid is drawn below: nothing is handed on from step to step.
    """
    trees = [read_source(one) for one in kind.__mro__ if one is not object and is_own(one)]
    nodes = [node for tree in trees if tree is not None for node in ast.walk(tree)]
    methods = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    if None in trees or any(isinstance(node, ast.Constant) and node.value == attribute for node in nodes):
        return False  # by its name, as `getattr(self, "generated")`
    is_set = any(sets(node, attribute) for one in methods if one.name in STEPPING for node in ast.walk(one))
    return is_set and not any(reads_first(one.body, attribute) for one in methods)


def sets(node: ast.AST, attribute: str) -> bool:
    """Whether a piece of code is an attribute of that name as a target of an assignment."""
    return isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Store)


def reads(nodes: Iterable[ast.AST], attribute: str) -> bool:
    """Whether there is an attribute of that name in pieces of code, other than as a target."""
    found = [one for node in nodes for one in ast.walk(node)]
    added = any(isinstance(one, ast.AugAssign) and sets(one.target, attribute) for one in found)
    return added or any(
        isinstance(one, ast.Attribute) and one.attr == attribute and not isinstance(one.ctx, ast.Store) for one in found
    )


def reads_first(body: Sequence[ast.stmt], attribute: str) -> bool:
    """Whether statements read an attribute where none of them, before, has set it."""
    for statement in body:
        blocks = [block for name in ("body", "orelse", "finalbody") if (block := getattr(statement, name, None))]
        blocks += [handler.body for handler in getattr(statement, "handlers", ())]
        inside = {id(one) for block in blocks for one in block}
        rest = [one for one in ast.iter_child_nodes(statement) if id(one) not in inside]
        if reads(rest if blocks else [statement], attribute) or any(reads_first(one, attribute) for one in blocks):
            return True
        if isinstance(statement, ast.Assign) and any(sets(one, attribute) for one in ast.walk(statement)):
            return False
    return False
