"""`springtide ui`: the board in a browser, signed in by a link that works once."""

import json

import typer

from springtide.cli.connections import connect_or_start
from springtide.cli.outputs import OUTPUT, OutputOption, tell


def run(
    browser: bool = typer.Option(True, "--browser/--no-browser", help="Open a browser, or only print the address."),
    output: OutputOption = OUTPUT,
) -> None:
    """Open the board in a browser, signed in. The link works once, within ten minutes.

    Examples:

      springtide ui

      springtide ui --no-browser
    """
    with connect_or_start() as client:
        link = client.make_link()
    if output is OutputOption.JSON:
        print(json.dumps({"schema": 1, "url": link}))
    else:
        print(link)
    if browser:
        open_browser(link)


def open_browser(link: str) -> None:
    """Open a page, where there is something to open it with."""
    import webbrowser

    try:
        opened = webbrowser.open(link)
    except webbrowser.Error:
        opened = False
    if not opened:
        tell("no browser was found here; open the address above, which works once within ten minutes")
