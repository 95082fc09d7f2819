"""The reference of the command line, made from the commands themselves: `python -m springtide.cli.reference`.

`docs/cli.md` is what it writes; a test compares the two.
"""

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer

from springtide.cli.app import PANELS, VERBS, add_verb

HEAD = """# The command line

Every command, made from the code by `make reference`. All take `--help`. What a command prints on stdout is its
result, as a table or with `-o json` as one JSON document (an error too: `{"schema": 1, "error": {...}}`); progress goes
to stderr. Exit codes: 0 done or admitted, 1 failed, 2 bad input, 3 declined, waitlisted or not yet known, 4 no server,
130 interrupted.

"""


def write_reference() -> str:
    """The page."""
    parts = [HEAD, "| Command | What it does |\n|---|---|\n"]
    for panel, verbs in PANELS.items():
        parts.append(f"| | **{panel}** |\n")
        parts += [f"| [`{verb}`](#springtide-{verb}) | {summary} |\n" for verb, (_, summary) in verbs.items()]
    for verb, (target, summary) in VERBS.items():
        app = typer.Typer(rich_markup_mode="rich")
        app.callback()(lambda: None)
        add_verb(app, verb, target, summary)
        group: Any = typer.main.get_command(app)
        for path, command in list_commands((verb,), group.commands[verb]):
            parts.append("\n" + "\n".join(write_command(path, command)))
    return "".join(parts)


def list_commands(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and those below it, each with its words."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from list_commands((*path, name), inner)


def write_command(path: tuple[str, ...], command: Any) -> Iterator[str]:
    """The lines of one command."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    usage = " ".join(["springtide", *path, *(["[OPTIONS]"] if options else []), *map(name_argument, arguments)])
    told, examples = split_help((command.help or "").replace(r"\[", "["))
    yield f"{'#' * (1 + len(path))} springtide {' '.join(path)}"
    yield f"\n```\n{usage}\n```\n"
    yield told + "\n"
    yield from write_parameters(arguments, options)
    if examples:
        yield "```console\n" + "\n".join(f"$ {line}" for line in examples) + "\n```\n"


def name_argument(argument: Any) -> str:
    """An argument as usage lines have it."""
    return str(argument.metavar or argument.name.upper())


def write_parameters(arguments: list[Any], options: list[Any]) -> Iterator[str]:
    """What can be given to a command, a line each."""
    shown = [(f"`{name_argument(one)}`", one) for one in arguments]
    shown += [(f"`{name_option(one)}`", one) for one in options if one.name != "help"]
    if shown:
        yield "| | |\n|---|---|"
        yield from (f"| {name} | {plain(one.help or '')}{show_default(one)} |" for name, one in shown)
        yield ""


def name_option(option: Any) -> str:
    """The names of an option and what it takes."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag or option.count:
        return names
    choices = type(option.default) if isinstance(option.default, Enum) else ()
    takes = "|".join(str(one.value) for one in choices) or option.metavar or option.name.upper()
    return f"{names} {takes}".replace("|", "\\|")


def show_default(parameter: Any) -> str:
    """What holds where nothing is given, if that is worth a word."""
    default = parameter.default
    if default is None or default is False or default in ((), [], "") or callable(default) or parameter.required:
        return ""
    shown = getattr(default, "value", default)
    return "" if "Default" in (parameter.help or "") or shown is True else f" Default: {shown}."


def split_help(text: str) -> tuple[str, list[str]]:
    """What a command says of itself, and the lines of its examples."""
    told, _, examples = inspect.cleandoc(text).replace("\f", "").replace("\b", "").partition("Example")
    lines = [line.strip() for line in examples.splitlines()[1:]]
    return plain(told.strip()), [line for line in lines if line]


def plain(text: str) -> str:
    """A text without the marks of rich."""
    return re.sub(r"\[/?(?:dim|bold|italic|green|cyan)?\]", "", text).replace("|", "\\|")


if __name__ == "__main__":
    print(write_reference(), end="")
