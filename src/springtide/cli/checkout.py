"""Finds the checkout for commands that need `experiments/` (figures, studies): it is not in the wheel."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import springtide
from springtide.errors import InputError

INSTALLED = Path(springtide.__file__).resolve().parents[2]


def find_checkout(installed: Path = INSTALLED) -> Path | None:
    """The checkout that the package runs from, or else the one that the user stands in; `pip install .` copies."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # somebody removed the folder that the shell stands in
        return installed if is_checkout(installed) else None
    return next((folder for folder in (installed, here, *here.parents) if is_checkout(folder)), None)


def is_checkout(folder: Path) -> bool:
    """Whether a folder is this repository; other projects have a package `experiments` too."""
    import tomllib

    if not (folder / "experiments" / "__init__.py").is_file():
        return False
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError):
        return False
    return isinstance(project, dict) and project.get("name") == "springtide"


FOUND = find_checkout()
CHECKOUT = FOUND or INSTALLED
IS_CHECKOUT = FOUND is not None


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
