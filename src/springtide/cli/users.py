"""`springtide users`: who may submit, and how much."""

import typer

from springtide.cli.connections import connect
from springtide.cli.outputs import OUTPUT, OutputOption, print_table

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
    rows = (
        (
            one.name,
            "admin" if one.admin else "user",
            show_limit(one.quota_device_s),
            show_limit(one.most_active),
            one.run_as or "-",
            one.project or "-",
        )
        for one in users
    )
    print_table(("NAME", "ROLE", "QUOTA (DEVICE-S)", "ACTIVE JOBS", "RUNS AS", "PROJECT"), rows)


@app.command("add")
def add_user(
    name: str = typer.Argument(metavar="NAME", help="Lower-case letters, digits, _ and -."),
    admin: bool = typer.Option(False, "--admin", help="May see and cancel all jobs, and change users."),
    quota: float = typer.Option(None, metavar="DEVICE-SECONDS", help="Most device-seconds planned at a time."),
    most_active: int = typer.Option(None, min=0, help="Most active jobs."),
    run_as: str = typer.Option(None, help="System user that jobs run as; needs a server that is root."),
    project: str = typer.Option(None, help="The project whose quota their jobs count against as well."),
    output: OutputOption = OUTPUT,
) -> None:
    """Add a user, or change one's limits. The token of a new user is shown this once.

    Example:

      springtide users add ann --quota 36000 --most-active 4
    """
    with connect() as client:
        user = client.put_user(
            name, admin=admin, quota_device_s=quota, most_active=most_active, run_as=run_as, project=project
        )
    if output.write(user.document):
        return
    if user.token:
        print(f"added {name}; their token, shown this once: {user.token}")
        print("they set SPRINGTIDE_URL and SPRINGTIDE_TOKEN, and submit")
    else:
        print(f"changed {name}")


@app.command("remove")
def remove_user(name: str = typer.Argument(metavar="NAME"), output: OutputOption = OUTPUT) -> None:
    """Take a user's token away; their jobs go on.

    Example:

      springtide users remove ann
    """
    with connect() as client:
        removed = client.drop_user(name)
    if not output.write(removed.document):
        print(f"removed {name}")


def show_limit(value: float | None) -> str:
    """A limit, or that there is none of its own."""
    return "default" if value is None else f"{value:g}"
