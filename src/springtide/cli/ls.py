"""`springtide ls`: what a job has left."""

import typer

from springtide.cli.connections import choose_job, complete_job, connect
from springtide.cli.outputs import OUTPUT, OutputOption, print_fitting, say, show_size, show_time
from springtide.cli.text_tables import TextTable


def run(
    job: str = typer.Argument(
        None, metavar="[JOB]", help="An id, a name or its beginning. Default: the newest.", autocompletion=complete_job
    ),
    paths: list[str] = typer.Argument(None, metavar="[PATH]...", help="Only these files, folders or patterns."),
    output: OutputOption = OUTPUT,
) -> None:
    """List what a job has left: its output, its checkpoints and its logs.

    Examples:

      springtide ls digits-cnn

      springtide ls digits-cnn output 'checkpoints/*/model.safetensors'
    """
    from springtide.client.fetching import choose_files

    with connect() as client:
        found = client.job(choose_job(client, job))
        files = client.files(found)
    chosen = choose_files(found.name, files, paths) if paths else files
    if output.write({"schema": 1, "job": found.id, "files": [one.document for one in chosen]}):
        return
    if not chosen:
        print(f"{found.name} has written no files yet")
        return
    rows = [(show_size(one.size), show_time(one.modified), one.path) for one in chosen]
    print_fitting(TextTable(("SIZE", "MODIFIED", "PATH"), rows, ranks=(2, 3, 1)))
    total = show_size(sum(one.size for one in chosen))
    count = "1 file" if len(chosen) == 1 else f"{len(chosen)} files"
    say(f"{count}, {total}; download with: springtide fetch {found.name} PATH...")
