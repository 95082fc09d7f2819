"""`springtide nodes`: the devices and who holds them; and letting a node take no more work."""

import typer

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, OutputOption, print_fitting, say
from springtide.cli.text_tables import TextTable

LEGEND = (
    "STATE: ready takes work; draining: its jobs are leaving it; drained: it takes no more work; "
    "lost: it is gone, and may come back"
)

app = typer.Typer(help="List devices and who holds them; drain a node.")


@app.callback(invoke_without_command=True)
def run(context: typer.Context, output: OutputOption = OUTPUT) -> None:
    """List devices and the jobs on them.

    Examples:

      springtide nodes

      springtide nodes drain node-1 --grace 60s
    """
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        devices, server = client.devices(), client.server()
    if output.write({"schema": 1, "devices": [one.document for one in devices]}):
        return
    headings = ("NODE", "STATE", "DEVICE", "TYPE", "HELD BY", "JOB")
    rows = [(one.node, one.state, one.name, one.device_type, one.job_name or "free", one.job or "") for one in devices]
    print_fitting(TextTable(headings, rows, ranks=(3, 2, 1, 4, 1, 5)), LEGEND)
    for key in ("outage", "outside_load"):
        if told := server.document.get(key):
            say(str(told))


@app.command()
def drain(
    node: str = typer.Argument(metavar="NODE", help="As `springtide nodes` names it."),
    grace: str = typer.Option("60s", metavar="SPAN", help="How long its jobs have to leave: 90s, 10m, 1h."),
    output: OutputOption = OUTPUT,
) -> None:
    """Let a node take no new work, and its jobs shrink off it, move or checkpoint within the grace.

    Promises that the other nodes cannot keep are named in events and marked at risk. The last node cannot be drained:
    `springtide stop` ends everything with checkpoints.

    Example:

      springtide nodes drain node-1 --grace 60s
    """
    with connect() as client:
        changed = client.drain(node, grace)
    if not output.write(changed.document):
        say(f"{node} is {changed.state}; follow it with: springtide nodes, springtide events")


@app.command()
def undrain(node: str = typer.Argument(metavar="NODE"), output: OutputOption = OUTPUT) -> None:
    """Let a drained node take work again.

    Example:

      springtide nodes undrain node-1
    """
    with connect() as client:
        changed = client.undrain(node)
    if not output.write(changed.document):
        say(f"{node} takes work again")
