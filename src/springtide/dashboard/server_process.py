"""The process of a server in the background, with its pages."""

import argparse
from pathlib import Path

from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.server import Listening, ServerSettings, serve
from springtide.control.storage.state_dir import StateDir
from springtide.dashboard.pages import add_pages
from springtide.errors import SpringtideError
from springtide.executors.local.daemon import detach


def main() -> None:
    """The process behind `start_background`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--address", default="auto")
    parser.add_argument("--devices", default=None)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--policy", default=ServerOptions().policy)
    parser.add_argument("--port", type=int, default=None)
    parser.add_argument("--detach", action="store_true")
    given = parser.parse_args()
    if given.detach:
        detach()
    settings = ServerSettings(
        StateDir(given.home),
        given.engine,
        given.devices,
        Listening(port=given.port),
        ServerOptions(policy=given.policy, nodes=given.nodes),
        log=StateDir(given.home).log if given.detach else None,
        address=given.address,
    )
    try:
        serve(settings, lambda url, link: None, add_pages)
    except SpringtideError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
