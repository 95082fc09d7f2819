"""The command `springtide` (short: `tide`): a table of verbs; only the one that is run is imported.

A verb is a function of a module, by default `run`; a module with an `app` is a group of sub-commands. Errors of the
tree in `springtide.errors` end the command with one line on stderr and their own exit code; Ctrl-C ends it with 130.
"""

import json
import os
import sys
from importlib import import_module
from inspect import cleandoc
from itertools import pairwise

import typer

from springtide import __version__
from springtide.cli.outputs import tell
from springtide.errors import SpringtideError

# What --help lists: panel -> verb -> (module or module:function, one line). A new verb costs a function and a line.
PANELS: dict[str, dict[str, tuple[str, str]]] = {
    "Train": {
        "demo": ("springtide.cli.demo", "See the platform at work on this machine, in about two minutes."),
        "new": ("springtide.cli.new", "Write a training script and a job file that run as they are."),
        "plan": ("springtide.cli.plan", "Say what a job would take, when it would finish and what it would cost."),
        "submit": ("springtide.cli.submit", "Ask for a promise: what to train, and by when."),
        "accept": ("springtide.cli.job_changes:accept", "Take the offer that came with a refusal."),
    },
    "Follow": {
        "ps": ("springtide.cli.job_table:ps", "List jobs."),
        "top": ("springtide.cli.job_table:top", "Watch jobs, devices and slack live."),
        "ui": ("springtide.cli.ui", "Open the board in a browser, signed in."),
        "status": ("springtide.cli.job_views:status", "Show everything about one job."),
        "why": ("springtide.cli.job_views:why", "Say why a job is where it is."),
        "events": ("springtide.cli.job_views:events", "Show decisions, rescales and faults."),
        "logs": ("springtide.cli.logs", "Show what a job writes."),
        "shell": ("springtide.cli.inside:shell", "Open a terminal inside a running job."),
        "exec": ("springtide.cli.inside:execute", "Run a command inside a running job."),
        "stack": ("springtide.cli.inside:stack", "Show where in its code each process of a job is."),
    },
    "Steer": {
        "hold": ("springtide.cli.job_changes:hold", "Let jobs wait until they are released."),
        "release": ("springtide.cli.job_changes:release", "Let held jobs go."),
        "cancel": ("springtide.cli.job_changes:cancel", "End jobs; their last checkpoints stay."),
        "resume": ("springtide.cli.job_changes:resume", "Let a paused, cancelled or failed job go on."),
    },
    "Results and proof": {
        "ls": ("springtide.cli.ls", "List the files that a job has left."),
        "fetch": ("springtide.cli.fetch", "Download weights, checkpoints, output or logs of a job."),
        "receipt": ("springtide.cli.receipt", "Show the receipt of a finished job: digests of what it trained."),
        "verify": ("springtide.cli.verify", "Prove by bits that a script trains the same on any number of processes."),
    },
    "Study": {
        "simulate": ("springtide.cli.simulate", "Replay traces under several policies and compare them."),
        "profile": ("springtide.cli.profile", "Measure a training script on the devices at hand."),
        "throughput": ("springtide.cli.throughput", "Predict step times from a few measured points."),
        "catalog": ("springtide.cli.catalog", "List the GPU machines that can be rented, and refresh their prices."),
        "figures": ("springtide.cli.figures", "Redraw the figures of the three papers from our own runs."),
    },
    "Run a platform": {
        "serve": ("springtide.cli.serve", "Run the platform on this machine."),
        "join": ("springtide.cli.join", "Give this machine to a cluster."),
        "nodes": ("springtide.cli.nodes", "List devices and who holds them."),
        "stop": ("springtide.cli.stop", "End the server and everything it started."),
        "doctor": ("springtide.cli.doctor", "Check this machine and this installation."),
        "users": ("springtide.cli.users", "Manage who may submit, and how much."),
        "projects": ("springtide.cli.projects", "Give groups of users a quota of their own."),
        "usage": ("springtide.cli.usage", "Show device-hours, money and promises kept, by user, project or job."),
        "gc": ("springtide.cli.maintenance:gc", "Remove what no job needs any more."),
        "du": ("springtide.cli.maintenance:du", "Show what takes space."),
        "backup": ("springtide.cli.maintenance:backup", "Copy the database while it is in use."),
        "restore": ("springtide.cli.maintenance:restore", "Replace the database by a backup."),
        "mcp": ("springtide.cli.mcp_server", "Offer the verbs to agents, as tools of the Model Context Protocol."),
        "completion": (
            "springtide.cli.completion",
            "Print a script that makes your shell complete commands and options.",
        ),
    },
}
VERBS = {name: verb for verbs in PANELS.values() for name, verb in verbs.items()}

COMPLETE = "_SPRINGTIDE_COMPLETE"  # set by the shell when it asks for completions
EPILOG = "Every command has --help with an example. Start with: springtide demo"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    words = sys.argv[1:] if arguments is None else arguments
    completed = os.environ.get(COMPLETE) and os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", ""))
    app = build_app(find_verb(completed.split()[1:] if completed else words))
    try:
        if wants_json(words):
            raise SystemExit(run_for_programs(app, words))
        app(args=words, prog_name="springtide")
    except SpringtideError as error:
        tell(f"error: {error}")
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def wants_json(words: list[str]) -> bool:
    """Whether the result, and hence an error too, is to be JSON on stdout."""
    pairs = [*pairwise(words), *(tuple(word.split("=", 1)) for word in words if word.startswith("--") and "=" in word)]
    return "-ojson" in words or any(pair in (("-o", "json"), ("--output", "json"), ("--json", "-")) for pair in pairs)


def run_for_programs(app: typer.Typer, words: list[str]) -> int:
    """Run a command whose reader is a program: what goes wrong is a document on stdout, and the line on stderr."""
    try:
        return int(app(args=words, prog_name="springtide", standalone_mode=False) or 0)
    except SpringtideError as error:
        reason, sentence, code, facts = error.reason, str(error), error.exit_code, error.facts
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        reason, sentence, code, facts = "usage", error.format_message(), getattr(error, "exit_code", 2), {}
    told = {"reason": reason, "sentence": sentence, "exit_code": code}
    print(json.dumps({"schema": 1, "error": told} | facts, indent=2))
    tell(f"error: {sentence}")
    return code


def find_verb(words: list[str]) -> str | None:
    """The verb that these words run: the first that is not an option, if it is one of ours."""
    return next((word for word in words if not word.startswith("-")), None)


def build_app(verb: str | None) -> typer.Typer:
    """An application that lists every verb and holds the real command of one."""
    app = typer.Typer(
        add_completion=COMPLETE in os.environ,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        epilog=EPILOG,
    )
    app.callback()(springtide)
    for panel, verbs in PANELS.items():
        for name, (target, summary) in verbs.items():
            if name == verb:
                add_verb(app, name, target, summary)
            else:
                app.command(name, help=summary, rich_help_panel=panel)(list_only)
    return app


def add_verb(app: typer.Typer, name: str, target: str, summary: str) -> None:
    """Import a verb's module and add its command or group."""
    module, _, function = target.partition(":")
    home = import_module(module)
    if hasattr(home, "app"):
        told = getattr(home, "run", home).__doc__
        app.add_typer(home.app, name=name, short_help=summary, help=told, no_args_is_help=not hasattr(home, "run"))
    else:
        command = getattr(home, function or "run")
        told = write_help(command.__doc__ or "")
        app.command(name, help=told, short_help=summary, context_settings=getattr(home, "CONTEXT", None))(command)


def write_help(text: str) -> str:
    """A docstring as help in which brackets are brackets, not colours: `springtide[mcp]`."""
    return cleandoc(text).replace("[", r"\[")


def show_version(wanted: bool) -> None:
    """Print the version and stop, when asked."""
    if wanted:
        typer.echo(f"springtide {__version__}")
        raise typer.Exit


def springtide(
    version: bool = typer.Option(False, "--version", callback=show_version, is_eager=True, help="Print the version."),
) -> None:
    """Say what to train and by when; get a promise, the right devices, and the same bits."""


def list_only() -> None:
    """A verb that is only being listed; its module is imported when it is run."""
