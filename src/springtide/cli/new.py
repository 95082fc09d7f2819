"""`springtide new`: a project that runs as it is."""

import ast
import shutil
from pathlib import Path

import typer

from springtide.cli.outputs import OUTPUT, OutputOption, print_table
from springtide.errors import InputError

FILES = ("train.py", "model.py", "job.yaml")
IGNORE_FILE = ".springtideignore"
IGNORED = """# What is not part of the code, as in .gitignore: it is not sent, and does not make the code unknown.
*.log
*.tmp
nohup.out
.ipynb_checkpoints/
outputs/
runs/
wandb/
lightning_logs/
mlruns/
"""


def run(
    folder: Path = typer.Argument(None, metavar="DIR", help="A folder that does not exist yet, or is empty."),
    example: str = typer.Option("cnn", "--example", "--template", help="What to train; see them with --list."),
    listing: bool = typer.Option(False, "--list", help="List the templates and write nothing."),
    output: OutputOption = OUTPUT,
) -> None:
    """Write a training script and its job file.

    Examples:

      springtide new hello && cd hello && springtide submit job.yaml

      springtide new my-gpt --example gpt

      springtide new --list
    """
    from springtide import examples

    if listing:
        list_templates(output)
        return
    if folder is None:
        raise InputError("give the name of a new folder, as in: springtide new hello; or see the templates: --list")
    if example not in examples.TEMPLATES:
        raise InputError(f"unknown example {example!r}; there are: {', '.join(examples.TEMPLATES)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{str(folder)!r} exists and is not empty; give the name of a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(examples.folder(example) / name, folder / name)
    (folder / IGNORE_FILE).write_text(IGNORED, encoding="utf-8")
    files = [*FILES, IGNORE_FILE]
    if output.write({"schema": 1, "folder": str(folder), "files": files}):
        return
    print(f"wrote {', '.join(files)} to {folder}")
    print(f"next: cd {folder} && springtide submit job.yaml && springtide logs -f")


def list_templates(output: OutputOption) -> None:
    """What can be written: the first line of each script says what it is."""
    from springtide import examples

    found = {name: describe(examples.folder(name) / "train.py") for name in examples.TEMPLATES}
    if output.write({"schema": 1, "templates": [{"name": name, "about": about} for name, about in found.items()]}):
        return
    print_table(("TEMPLATE", "WHAT IT TRAINS"), found.items())
    print("write one with: springtide new DIR --template NAME")


def describe(script: Path) -> str:
    """The first line of a script's docstring."""
    text = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")
