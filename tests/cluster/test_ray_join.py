"""The guide's way to a cluster, command by command: a head with a token, a host that joins, one that may not."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cluster.ray_clusters import needs_ray
from tests.executors.hosts.loopback_cluster import wait_until

from springtide.executors.ray.host_survey import judge

pytestmark = needs_ray
BIN = Path(sys.executable).parent


@dataclass
class Head:
    """A head without work, and the variables of whoever may speak with it."""

    host: str
    port: int
    variables: dict[str, str]

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command of ours that knows the token, unless `more` says otherwise."""
        return subprocess.run(
            [str(BIN / "springtide"), *words],
            env={**os.environ, **self.variables, **more},
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    variables = {**token, "SPRINGTIDE_HOME": str(tmp_path / "home")}
    command = [str(BIN / "ray"), "start", "--head", "--num-cpus", "0", "--port", str(port), "--block"]
    command += ["--include-dashboard", "false", "--disable-usage-stats"]
    process = subprocess.Popen(
        command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    host = ""
    for line in process.stdout:
        if "Local node IP:" in line:
            host = line.rpartition(":")[2].strip()
        if "Ray runtime started" in line:
            break
    yield Head(host, port, variables)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


@pytest.mark.slow
def test_only_a_host_with_the_token_joins(head: Head) -> None:
    wrong = head.run("doctor", "--engine", "ray", "--address", head.address, RAY_AUTH_TOKEN=secrets.token_hex(32))
    assert wrong.returncode == 1 and "does not let us in" in wrong.stdout, wrong.stdout
    host = subprocess.Popen(
        [str(BIN / "springtide"), "join", head.address, "--devices", "1"],
        env={**os.environ, **head.variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        said = [""]

        def is_there() -> bool:
            said[0] = head.run("doctor", "--engine", "ray", "--address", head.address).stdout
            return "1 hosts" in said[0] and "1 x cpu" in said[0]

        wait_until(is_there, lambda: said[0])
    finally:
        host.send_signal(signal.SIGTERM)
        assert host.wait(60) == 0


def test_what_is_wrong_with_a_host_is_said() -> None:
    good = {"version": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "nice": 0, "witness": "w", "devices": "1 x cpu"}
    assert judge("blue", good, "w", "/home").problem == ""
    assert "no torch" in judge("blue", {**good, "torch": ""}, "w", "/home").problem
    assert "install the same" in judge("blue", {**good, "version": "0.0.9"}, "w", "/home").problem
    assert "storage that all hosts share" in judge("blue", {**good, "witness": ""}, "w", "/home").problem
    assert "nice 15" in judge("blue", {**good, "nice": 15}, "w", "/home").remark
    assert "springtide[train,ray]" in judge("blue", {"error": "ModuleNotFoundError"}, "w", "/home").problem
