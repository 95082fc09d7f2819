"""The client is imported without the command line of httpx, which stays importable for whoever wants it."""

import subprocess
import sys

CHECK = """
import sys
import springtide.client.client
assert "httpx._main" not in sys.modules and "pygments" not in sys.modules, sorted(sys.modules)
import httpx, httpx._main
assert httpx.Client is springtide.client.server_line.httpx.Client
"""


def test_the_client_leaves_the_command_line_of_httpx_out() -> None:
    subprocess.run([sys.executable, "-c", CHECK], check=True)
