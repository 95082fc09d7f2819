"""`springtide nodes`: the devices, and who holds them."""

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, Output, print_table, write_json


def run(output: Output = OUTPUT) -> None:
    """List devices and the jobs on them.

    Example:

      springtide nodes
    """
    with connect() as client:
        devices = client.nodes()
    if output is Output.JSON:
        write_json({"schema": 1, "devices": devices})
        return
    rows = ((one["node"], one["name"], one["type"], one["job_name"] or "free", one["job"] or "") for one in devices)
    print_table(("NODE", "DEVICE", "TYPE", "HELD BY", "JOB"), rows)
