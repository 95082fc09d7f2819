"""What studies and reproduces rather than serves is in `experiments/` of the repository, not in the wheel."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import springtide
from springtide.errors import InputError

CHECKOUT = Path(springtide.__file__).resolve().parents[2]
IS_CHECKOUT = (CHECKOUT / "experiments" / "__init__.py").is_file()


def import_experiment(name: str, what: str, command: str) -> ModuleType:
    """A module of `experiments/`; refused, with what it is for and what to run in a checkout, where there is none."""
    if not IS_CHECKOUT:
        raise InputError(
            f"{what} by experiments/ of the repository, which the installed package does not contain; "
            f"clone it and run there: {command}"
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.append(str(CHECKOUT))
    return import_module(f"experiments.{name}")
