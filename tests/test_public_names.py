"""The front doors: `import springtide` is light, and every public name is found and listed."""

import json
import subprocess
import sys

import pytest

import springtide

HEAVY = ("torch", "httpx", "pydantic", "numpy", "typer", "springtide.errors", "springtide.client")
PENDING = {"simulate"}  # its module comes with the simulator's own front door


def test_importing_the_package_imports_nothing_else() -> None:
    program = f"import json, sys, springtide; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("name", sorted(set(springtide.__all__) - PENDING))
def test_every_public_name_is_found_and_listed(name: str) -> None:
    assert getattr(springtide, name) is not None
    assert name in dir(springtide)


def test_listing_the_names_imports_none_of_them_and_hides_the_rest() -> None:
    assert set(dir(springtide)) == set(springtide.__all__)
    with pytest.raises(AttributeError, match="no attribute 'crew'"):
        springtide.crew  # noqa: B018
