"""`springtide new`: a project that runs as it is."""

import shutil
from pathlib import Path

import typer

from springtide.cli.outputs import OUTPUT, OutputOption
from springtide.errors import InputError

FILES = ("train.py", "model.py", "job.yaml")


def run(
    folder: Path = typer.Argument(metavar="DIR", help="A folder that does not exist yet, or is empty."),
    example: str = typer.Option("cnn", help="What to train: cnn, gpt, recommender or resnet."),
    output: OutputOption = OUTPUT,
) -> None:
    """Write a training script and its job file.

    Examples:

      springtide new hello && cd hello && springtide submit job.yaml

      springtide new my-gpt --example gpt
    """
    from springtide import examples

    if example not in examples.NAMES:
        raise InputError(f"unknown example {example!r}; there are: {', '.join(examples.NAMES)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{str(folder)!r} exists and is not empty; give the name of a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(examples.folder(example) / name, folder / name)
    if output.write({"schema": 1, "folder": str(folder), "files": list(FILES)}):
        return
    print(f"wrote {', '.join(FILES)} to {folder}")
    print(f"next: cd {folder} && springtide submit job.yaml && springtide logs -f")
