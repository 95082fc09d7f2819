"""One agent for all tests of a session that do not end it for good."""

from collections.abc import Iterator

import pytest
from tests.executors.local.agents import RecordedAgent, start_agent


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedAgent]:
    """The stage for all tests that do not end the agent for good."""
    made = start_agent(tmp_path_factory.mktemp("stage"))
    yield made
    made.executor.shutdown()
    assert made.marked() == []
