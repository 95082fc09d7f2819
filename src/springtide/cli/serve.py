"""`springtide serve`: run the platform on this machine."""

import json
from dataclasses import replace

import typer

from springtide.cli.outputs import OUTPUT, OutputOption, tell


def run(
    host: str = typer.Option("127.0.0.1", help="Address to listen on. Anything else is visible to the network."),
    port: int = typer.Option(None, min=0, max=65535, help="Default: 8410, or any free one if that is taken."),
    devices: str = typer.Option(
        None,
        metavar="SLOTS",
        help="CPU slots, where there is no GPU: a number, or numbers by type as in 2:cpu,2:cpu-sse41. "
        "[dim]Default: the cores[/]",
    ),
    nodes: int = typer.Option(1, min=1, help="Cut the devices of each type into so many nodes, to be drained singly."),
    policy: str = typer.Option(None, help="Who gets how many devices. [dim]Default: springtide[/]"),
    engine: str = typer.Option("local", help="Where jobs run: local, or fake (nothing really runs)."),
    host_name: list[str] = typer.Option([], help="Further names under which this server is called."),
    cloud: str = typer.Option(
        None,
        metavar="NAMES",
        help="Where a declined job could rent, for its price. [dim]Default: aws,azure,gcp[/]; or none",
    ),
    database: str = typer.Option(None, metavar="URL", help="postgresql://... instead of SQLite."),
    keep_orphans: bool = typer.Option(
        False, "--keep-orphans", help="Serve although the database knows none of the jobs whose folders are here."
    ),
    output: OutputOption = OUTPUT,
) -> None:
    """Run the platform until Ctrl-C. Jobs go on for ten minutes without a server; `springtide stop` ends all.

    Examples:

      springtide serve

      springtide serve --port 8500 --devices 4
    """
    from springtide.control.scheduling.context import ServerOptions
    from springtide.control.server import Listening, ServerSettings, serve
    from springtide.control.storage.state_dir import find_home
    from springtide.dashboard.pages import add_pages
    from springtide.policies import find_policy

    options = ServerOptions(nodes=nodes) if policy is None else ServerOptions(policy=policy, nodes=nodes)
    if cloud is not None:
        options = replace(options, clouds=cloud)
    find_policy(options.policy)
    home = find_home()

    def announce(url: str, link: str) -> None:
        if output is OutputOption.JSON:
            print(json.dumps({"schema": 1, "url": url, "home": str(home.root)}), flush=True)
        tell(f"springtide at {url} (token in {home.token}); Ctrl-C ends the server")
        tell(f"the board, signed in once within ten minutes: {url}{link} (later: springtide ui)")

    listening = Listening(host, port, tuple(name.lower() for name in host_name))
    settings = ServerSettings(home, engine, devices, listening, options, database, keep_orphans)
    serve(settings, announce, add_pages)
