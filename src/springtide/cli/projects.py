"""`springtide projects`: groups of users, and what they may have together."""

import typer

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, OutputOption, print_table
from springtide.cli.users import show_limit

app = typer.Typer(help="Groups of users with a quota of their own. For admins.")


@app.callback(invoke_without_command=True)
def run(context: typer.Context, output: OutputOption = OUTPUT) -> None:
    """List projects, their limits and their users; add, change or remove one.

    Examples:

      springtide projects add vision --quota 360000

      springtide users add ann --project vision
    """
    if context.invoked_subcommand is None:
        list_projects(output)


@app.command("list")
def list_projects(output: OutputOption = OUTPUT) -> None:
    """List projects, their limits and their users.

    Example:

      springtide projects list
    """
    with connect() as client:
        projects = client.projects()
    if output.write({"schema": 1, "projects": [one.document for one in projects]}):
        return
    rows = (
        (one.name, show_limit(one.quota_device_s), show_limit(one.most_active), ", ".join(one.users) or "-")
        for one in projects
    )
    empty = "no projects; add one with: springtide projects add NAME"
    print_table(("NAME", "QUOTA (DEVICE-S)", "ACTIVE JOBS", "USERS"), rows, empty)


@app.command("add")
def add_project(
    name: str = typer.Argument(metavar="NAME", help="Lower-case letters, digits, _ and -."),
    quota: float = typer.Option(None, metavar="DEVICE-SECONDS", help="Most device-seconds planned at a time, for all."),
    most_active: int = typer.Option(None, min=0, help="Most active jobs of all its users."),
    output: OutputOption = OUTPUT,
) -> None:
    """Add a project, or change its limits.

    Example:

      springtide projects add vision --quota 360000
    """
    with connect() as client:
        project = client.put_project(name, quota_device_s=quota, most_active=most_active)
    if not output.write(project.document):
        print(f"project {name} is there; put users into it with: springtide users add USER --project {name}")


@app.command("remove")
def remove_project(name: str = typer.Argument(metavar="NAME"), output: OutputOption = OUTPUT) -> None:
    """Remove a project that has no users.

    Example:

      springtide projects remove vision
    """
    with connect() as client:
        removed = client.drop_project(name)
    if not output.write(removed.document):
        print(f"removed {name}")
