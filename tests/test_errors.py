"""Every error that the API answers with is in the one tree, and the drawing of it is complete."""

import ast
import re
from pathlib import Path

from springtide import errors
from springtide.control.api.error_replies import STATUSES


def test_the_drawing_has_every_error() -> None:
    classes = [
        node
        for node in ast.parse(Path(errors.__file__).read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]
    drawn = re.findall(r"^[│├└─ ]*(\w+Error)\b", errors.__doc__ or "", flags=re.M)
    assert sorted(drawn) == sorted(node.name for node in classes)


def test_errors_of_the_api_are_of_the_tree() -> None:
    assert {kind.__module__ for kind in STATUSES} == {errors.__name__}


def test_a_reason_stands_for_one_kind() -> None:
    assert errors.find_kind("removeduser", errors.ServerError) is errors.RemovedUserError
    assert errors.find_kind("removeduser", errors.InputError) is errors.InputError
    assert errors.find_kind("never_heard_of", errors.LimitError) is errors.LimitError
