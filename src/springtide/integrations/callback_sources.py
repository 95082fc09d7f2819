"""What the source of a user's callback shows: whether it steps an optimizer."""

import ast
import inspect
import re
import textwrap

OPTIMIZER = re.compile(r"(^|[._'\"\[])(optimizers?|optim)\b")


def steps_optimizer(kind: type) -> bool:
    """Whether a class has a line that steps an optimizer; not, where there is no source to read."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return False
    return any(is_optimizer_step(node) for node in ast.walk(tree))


def is_optimizer_step(node: ast.AST) -> bool:
    """Whether a piece of code is `<something of optimizer>.step(...)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "step":
        return False
    return OPTIMIZER.search(ast.unparse(node.func.value)) is not None
