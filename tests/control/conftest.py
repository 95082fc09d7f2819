"""A private PostgreSQL, where its server and driver are installed.

`make test-postgres` installs the driver and sets $SPRINGTIDE_POSTGRES, with which a missing part fails instead.
"""

import os
from collections.abc import Iterator

import pytest
from benchmarks.private_postgres import find_lack, run_postgres


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The address of an empty database."""
    lack = find_lack()
    if lack and "SPRINGTIDE_POSTGRES" in os.environ:
        pytest.fail(lack)
    if lack:
        pytest.skip(lack)
    with run_postgres() as url:
        yield url
