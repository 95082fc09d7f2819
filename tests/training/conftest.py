"""One warm fork server and one laboratory for all training tests."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.training.equality import EqualityRuns

from springtide.training.verification.supervision import connect_server, start_server


@pytest.fixture(scope="session")
def fork_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A warm fork server that lives as long as the tests."""
    path = tmp_path_factory.mktemp("fork") / "socket"
    process: subprocess.Popen[bytes] = start_server(path)
    holder: socket.socket = connect_server(path, process)
    yield path
    holder.close()
    process.wait(30)


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory, fork_socket: Path) -> EqualityRuns:
    """A laboratory for all tests of a session."""
    return EqualityRuns(tmp_path_factory.mktemp("laboratory"), fork_socket)
