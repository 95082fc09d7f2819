"""`springtide figures`: redraw the figures of the three papers, by `experiments/` of the repository."""

from collections.abc import Callable
from typing import Any

from springtide.cli.checkout import IS_CHECKOUT, import_experiment

#: Outside a checkout every option leads to the refusal.
CONTEXT: dict[str, Any] = {} if IS_CHECKOUT else {"ignore_unknown_options": True, "allow_extra_args": True}


def find_command() -> Any:
    """The command of the checkout that this package runs from."""
    command = "make figures, or make figures DATA=DIR with the public data"
    return import_experiment("command", "the figures are drawn", command).run


def refuse() -> None:
    """Redraw the figures of the three papers; needs a checkout of the repository."""
    find_command()


run: Callable[..., None] = find_command() if IS_CHECKOUT else refuse
