"""One host with a warm fork server and one runner of compared scripts for all tests of a session."""

from collections.abc import Iterator

import pytest
from tests.training.equality import EqualityRuns

from springtide.verification.scripted_jobs import Host


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    """A host that lives as long as the tests."""
    with Host() as made:
        yield made


@pytest.fixture(scope="session")
def equality(tmp_path_factory: pytest.TempPathFactory, host: Host) -> EqualityRuns:
    """The runs that are compared with stock DDP, for all tests of a session."""
    return EqualityRuns(tmp_path_factory.mktemp("equality"), host)
