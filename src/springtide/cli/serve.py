"""`springtide serve`: run the platform on this machine."""

import json
import threading
from dataclasses import replace

import typer

from springtide.cli.outputs import OUTPUT, OutputOption, tell
from springtide.cli.ui import open_browser


def run(
    host: str = typer.Option("127.0.0.1", help="Address to listen on. Anything else is visible to the network."),
    port: int = typer.Option(None, min=0, max=65535, help="Default: 8410, or any free one if that is taken."),
    devices: str = typer.Option(
        None,
        metavar="SLOTS",
        help="CPU slots, where there is no GPU: a number, or numbers by type as in 2:cpu,2:cpu-sse41. "
        "[dim]Default: the cores[/]",
    ),
    nodes: int = typer.Option(
        1, min=1, help="Cut the devices of each type into this many nodes, so that each can be drained alone."
    ),
    policy: str = typer.Option(None, help="Who gets how many devices. [dim]Default: springtide[/]"),
    engine: str = typer.Option(
        "local", help="Where jobs run: local, ray (the hosts of a Ray cluster), or fake (nothing really runs)."
    ),
    address: str = typer.Option("auto", metavar="HOST:PORT", help="The Ray cluster, for --engine ray."),
    host_name: list[str] = typer.Option([], help="Further host names by which this server may be called."),
    cloud: str = typer.Option(
        None,
        metavar="NAMES",
        help="Where a declined job could rent, for its price. [dim]Default: aws,azure,gcp[/]; or none",
    ),
    database: str = typer.Option(
        None, metavar="URL", envvar="SPRINGTIDE_DATABASE", help="postgresql://... instead of SQLite."
    ),
    storage: str = typer.Option(
        None, metavar="URL", help="s3://... or gs://... for checkpoints, outputs and code, instead of this disk."
    ),
    keep_orphans: bool = typer.Option(
        False, "--keep-orphans", help="Serve although the database knows none of the jobs whose folders are here."
    ),
    standby: bool = typer.Option(
        False, "--standby", help="Wait for the end of another server of the same --database, and go on in its place."
    ),
    browser: bool = typer.Option(False, "--open", help="Open the board in a browser, signed in."),
    output: OutputOption = OUTPUT,
) -> None:
    """Run the platform until Ctrl-C. Jobs go on for ten minutes without a server; `springtide stop` ends all.

    Examples:

      springtide serve

      springtide serve --port 8500 --devices 4

      springtide serve --engine ray --address 10.0.0.5:6379
    """
    from springtide.control.scheduling.context import ServerOptions
    from springtide.control.server import Listening, ServerSettings, serve
    from springtide.control.storage.state_dir import find_home
    from springtide.dashboard.pages import add_pages
    from springtide.policies import find_policy

    options = ServerOptions(nodes=nodes) if policy is None else ServerOptions(policy=policy, nodes=nodes)
    if cloud is not None:
        options = replace(options, clouds=cloud)
    if storage is not None:
        options = replace(options, storage=storage)
    find_policy(options.policy)
    home = find_home()

    def announce(url: str, link: str) -> None:
        if output is OutputOption.JSON:
            print(json.dumps({"schema": 1, "url": url, "home": str(home.root)}), flush=True)
        tell(f"springtide at {url} (token in {home.token}); Ctrl-C ends the server")
        tell(f"the board, signed in once within ten minutes: {url}{link} (later: springtide ui)")
        if browser:
            # Beside us: a browser in the terminal waits for the page, which nobody serves before this returns.
            threading.Thread(target=open_browser, args=(url + link,), daemon=True).start()

    def announce_standby(url: str) -> None:
        if output is OutputOption.JSON:
            print(json.dumps({"schema": 1, "url": url, "home": str(home.root), "standby": True}), flush=True)
        tell(f"springtide stands by at {url}; it serves when the active server of this database ends")

    listening = Listening(host, port, tuple(name.lower() for name in host_name))
    settings = ServerSettings(
        home, engine, devices, listening, options, database, keep_orphans, standby=standby, address=address
    )
    serve(settings, announce, add_pages, announce_standby)
