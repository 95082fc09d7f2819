"""Whether a framework is there for a test: `make test-frameworks` installs them, and then none may be missing."""

import os

import pytest


def need(package: str) -> None:
    """Skip what is tested with a package that is not installed; fail where the target has installed it."""
    if os.environ.get("SPRINGTIDE_FRAMEWORKS") == "required":
        __import__(package)
    else:
        pytest.importorskip(package, reason=f"{package} is not installed; `make test-frameworks` installs it")
