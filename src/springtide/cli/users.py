"""`springtide users`: who may submit, and how much."""

import typer

from springtide.cli.connections import connect
from springtide.cli.option_groups import flatten
from springtide.cli.outputs import OUTPUT, OutputOption, print_fitting
from springtide.cli.quota_options import HEADINGS, LEGEND, NAME, QuotaOptions, remove, show_limits
from springtide.cli.text_tables import TextTable

app = typer.Typer(help="Who may submit, and how much. For admins; without users of its own a server has its owner.")


@app.callback(invoke_without_command=True)
def run(context: typer.Context, output: OutputOption = OUTPUT) -> None:
    """List users and their limits; add, change or remove one.

    Examples:

      springtide users

      springtide users add ann --quota 36000
    """
    if context.invoked_subcommand is None:
        list_users(output)


@app.command("list")
def list_users(output: OutputOption = OUTPUT) -> None:
    """List users and their limits.

    Example:

      springtide users list
    """
    with connect() as client:
        users = client.users()
    if output.write({"schema": 1, "users": [one.document for one in users]}):
        return
    rows = [
        (one.name, "admin" if one.admin else "user", *show_limits(one), one.run_as or "-", one.project or "-")
        for one in users
    ]
    table = TextTable(("NAME", "ROLE", *HEADINGS, "RUNS AS", "PROJECT"), rows, ranks=(1, 2, 3, 4, 6, 5))
    print_fitting(table, f"{LEGEND}; RUNS AS: the system user of their jobs (-: the server's)")


@app.command("add")
@flatten
def add_user(
    name: str = NAME,
    admin: bool | None = typer.Option(
        None, "--admin/--no-admin", help="May see and cancel all jobs, and change users."
    ),
    limits: QuotaOptions = QuotaOptions(),  # noqa: B008
    run_as: str = typer.Option(None, help="System user that jobs run as; needs a server that is root."),
    project: str = typer.Option(None, help="The project whose quota their jobs count against as well."),
    output: OutputOption = OUTPUT,
) -> None:
    """Add a user, or change what is given of one. The token of a new user is shown this once.

    Example:

      springtide users add ann --quota 36000 --most-active 4
    """
    is_admin = bool(admin) if limits.reset else admin
    with connect() as client:
        user = client.put_user(name, **limits.write_document(admin=is_admin, run_as=run_as, project=project))
    if output.write(user.document):
        return
    if user.token:
        print(f"added {name}; their token, shown this once: {user.token}")
        print("they set SPRINGTIDE_URL and SPRINGTIDE_TOKEN, and can then submit")
    else:
        print(f"changed {name}")


@app.command("remove")
def remove_user(name: str = NAME, output: OutputOption = OUTPUT) -> None:
    """Take a user's token away; their jobs go on.

    Example:

      springtide users remove ann
    """
    with connect() as client:
        remove(client.drop_user, name, output)
