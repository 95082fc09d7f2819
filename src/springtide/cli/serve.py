"""`springtide serve`: run the platform on this machine."""

import json
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from springtide.cli.option_groups import flatten, option
from springtide.cli.outputs import OUTPUT, OutputOption, tell
from springtide.cli.ui import open_browser

if TYPE_CHECKING:
    from springtide.control.scheduling.server_context import ServerOptions
    from springtide.control.server import ServerSettings
    from springtide.control.storage.state_dir import StateDir


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Where the server listens, which devices it has, and where it keeps what it knows."""

    host: str = option("127.0.0.1", "Address to listen on. Anything else is visible to the network.")
    port: int | None = option(None, "Default: 8410, or any free one if that is taken.", min=0, max=65535)
    devices: str | None = option(
        None,
        "CPU slots, where there is no GPU: a number, or numbers by type as in 2:cpu,2:cpu-sse41. "
        "[dim]Default: the cores[/]",
        metavar="SLOTS",
    )
    nodes: int = option(
        1, "Cut the devices of each type into this many nodes, so that each can be drained alone.", min=1
    )
    policy: str | None = option(None, "Who gets how many devices. [dim]Default: springtide[/]")
    engine: str = option(
        "local", "Where jobs run: local, ray (the hosts of a Ray cluster), or fake (nothing really runs)."
    )
    address: str = option("auto", "The Ray cluster, for --engine ray.", metavar="HOST:PORT")
    host_name: list[str] = option([], "Further host names by which this server may be called.")
    cloud: str | None = option(
        None, "Where a declined job could rent, for its price. [dim]Default: aws,azure,gcp[/]; or none", metavar="NAMES"
    )
    database: str | None = option(
        None, "postgresql://... instead of SQLite.", metavar="URL", envvar="SPRINGTIDE_DATABASE"
    )
    storage: str | None = option(
        None, "s3://... or gs://... for checkpoints, outputs and code, instead of this disk.", metavar="URL"
    )
    keep_orphans: bool = option(
        False, "Serve although the database knows none of the jobs whose folders are here.", "--keep-orphans"
    )
    standby: bool = option(
        False, "Wait for the end of another server of the same --database, and go on in its place.", "--standby"
    )
    browser: bool = option(False, "Open the board in a browser, signed in.", "--open")


@flatten
def run(asked: ServeOptions, output: OutputOption = OUTPUT) -> None:
    """Run the platform until Ctrl-C. Jobs go on for ten minutes without a server; `springtide stop` ends all.

    Examples:

      springtide serve

      springtide serve --port 8500 --devices 4

      springtide serve --engine ray --address 10.0.0.5:6379
    """
    from springtide.control.server import serve
    from springtide.control.storage.state_dir import find_home
    from springtide.dashboard.pages import add_pages

    home = find_home()
    settings = make_settings(asked, home)
    announcing = partial(announce, home, asked.browser, output)
    serve(settings, announcing, add_pages, partial(announce_standby, home, output))


def make_settings(asked: ServeOptions, home: "StateDir") -> "ServerSettings":
    """The settings of the server that the options ask for; a policy that is not known is refused."""
    from springtide.control.server import Listening, ServerSettings
    from springtide.policies import find_policy

    options = choose_options(asked)
    find_policy(options.policy)
    listening = Listening(asked.host, asked.port, tuple(name.lower() for name in asked.host_name))
    return ServerSettings(
        home,
        asked.engine,
        asked.devices,
        listening,
        options,
        asked.database,
        asked.keep_orphans,
        standby=asked.standby,
        address=asked.address,
    )


def choose_options(asked: ServeOptions) -> "ServerOptions":
    """What of the server's own options is given here, the rest as it is without them."""
    from springtide.control.scheduling.server_context import ServerOptions

    options = ServerOptions(nodes=asked.nodes)
    if asked.policy is not None:
        options = replace(options, policy=asked.policy)
    if asked.cloud is not None:
        options = replace(options, clouds=asked.cloud)
    return options if asked.storage is None else replace(options, storage=asked.storage)


def announce(home: "StateDir", browser: bool, output: OutputOption, url: str, link: str) -> None:
    """Say where the server is, and open its board if that was asked for."""
    if output is OutputOption.JSON:
        print(json.dumps({"schema": 1, "url": url, "home": str(home.root)}), flush=True)
    tell(f"springtide at {url} (token in {home.token}); Ctrl-C ends the server")
    tell(f"the board, signed in once within ten minutes: {url}{link} (later: springtide ui)")
    if browser:
        # Beside us: a browser in the terminal waits for the page, which nobody serves before this returns.
        threading.Thread(target=open_browser, args=(url + link,), daemon=True).start()


def announce_standby(home: "StateDir", output: OutputOption, url: str) -> None:
    """Say that this server waits for the end of another."""
    if output is OutputOption.JSON:
        print(json.dumps({"schema": 1, "url": url, "home": str(home.root), "standby": True}), flush=True)
    tell(f"springtide stands by at {url}; it serves when the active server of this database ends")
