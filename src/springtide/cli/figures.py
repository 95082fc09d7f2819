"""`springtide figures`: redraw the figures of the three papers, by `experiments/` of the repository."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import springtide
from springtide.errors import InputError

CHECKOUT = Path(springtide.__file__).resolve().parents[2]
IS_CHECKOUT = (CHECKOUT / "experiments" / "command.py").is_file()
#: Outside a checkout every option leads to the refusal.
CONTEXT: dict[str, Any] = {} if IS_CHECKOUT else {"ignore_unknown_options": True, "allow_extra_args": True}


def refuse() -> None:
    """Redraw the figures of the three papers; needs a checkout of the repository."""
    raise InputError(
        "the figures are drawn by experiments/ of the repository, which the installed package does not contain; "
        "clone it and run there: make figures, or make figures DATA=DIR with the public data"
    )


def find_command() -> Callable[..., None]:
    """The command of the checkout that this package runs from, or one that says where to get it."""
    if not IS_CHECKOUT:
        return refuse
    sys.path.append(str(CHECKOUT))
    from experiments.command import run as draw_figures

    return draw_figures


run = find_command()
