"""A real S3-compatible server (moto) on loopback, in a process and with packages of its own.

`make test-storage` installs s3fs and moto, and sets $SPRINGTIDE_MOTO to its folder; else these tests are skipped.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

MOTO = os.environ.get("SPRINGTIDE_MOTO", "")
BUCKET = "springtide"


@dataclass
class S3Server:
    """A server that can be stopped, as a store that does not answer."""

    process: subprocess.Popen[bytes]
    url: str

    @property
    def environ(self) -> dict[str, str]:
        """What a client of it has in its environment."""
        return {
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "hidden",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
        }

    def hold(self) -> None:
        """Let it answer nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def release(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def run_s3(is_open: bool = True) -> Iterator[S3Server]:
    """A server with one empty bucket, which takes any key; one that is not open knows no key at all."""
    if not MOTO:
        pytest.skip("needs make test-storage (s3fs and moto)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    told = {"PYTHONPATH": MOTO, **({} if is_open else {"INITIAL_NO_AUTH_ACTION_COUNT": "1"})}  # the bucket is made
    process = subprocess.Popen(command, env={**os.environ, **told}, stdout=quiet, stderr=quiet)
    server = S3Server(process, f"http://127.0.0.1:{port}")
    try:
        wait_for(server)
        httpx.put(f"{server.url}/{BUCKET}").raise_for_status()
        yield server
    finally:
        server.release()
        process.kill()
        process.wait()


def wait_for(server: S3Server) -> None:
    """Wait until it answers."""
    for _ in range(600):
        try:
            httpx.get(f"{server.url}/moto-api/", timeout=1.0)
            return
        except httpx.HTTPError:
            assert server.process.poll() is None, "moto has ended"
            time.sleep(0.1)
    pytest.fail("moto does not answer")
