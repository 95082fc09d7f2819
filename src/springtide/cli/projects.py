"""`springtide projects`: groups of users, and what they may have together."""

import typer

from springtide.cli.connections import connect
from springtide.cli.option_groups import flatten
from springtide.cli.outputs import OUTPUT, OutputOption, print_table
from springtide.cli.quota_options import HEADINGS, LEGEND, NAME, QuotaOptions, remove, show_limits

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
    rows = ((one.name, *show_limits(one), ", ".join(one.users) or "-") for one in projects)
    empty = "no projects; add one with: springtide projects add NAME"
    print_table(("NAME", *HEADINGS, "USERS"), rows, empty, legend=LEGEND)


@app.command("add")
@flatten
def add_project(
    name: str = NAME,
    limits: QuotaOptions = QuotaOptions(),  # noqa: B008
    output: OutputOption = OUTPUT,
) -> None:
    """Add a project, or change what is given of its limits, which all its users share.

    Example:

      springtide projects add vision --quota 360000
    """
    with connect() as client:
        project = client.put_project(name, **limits.write_document())
    if not output.write(project.document):
        print(f"project {name} is there; put users into it with: springtide users add USER --project {name}")


@app.command("remove")
def remove_project(name: str = NAME, output: OutputOption = OUTPUT) -> None:
    """Remove a project that has no users.

    Example:

      springtide projects remove vision
    """
    with connect() as client:
        remove(client.drop_project, name, output)
