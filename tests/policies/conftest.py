"""The planner is compiled before its tests, as before a simulation; `test_compilation` compares the two forms."""

import pytest

from springtide.policies.elasticflow import warm_up


@pytest.fixture(autouse=True, scope="session")
def compile_planner() -> None:
    """Compile once for all tests of this folder."""
    warm_up()
