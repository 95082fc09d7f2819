"""How many logical workers a script asks for, and running it with another number.

For `springtide verify` and the benchmarks, which try one script with several N. A job is never run this way: its number
is part of what it trains. As a script: `renumber.py N|ask SCRIPT [ARGUMENT ...]`.
"""

import ast
import functools
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import springtide
from springtide.errors import JobError
from springtide.training import run

ASK = "ask"


def find_workers(script: Path, arguments: Sequence[str]) -> int:
    """The number of logical workers that a script gives to `springtide.init`: read in its text, or asked of it."""
    numbers = read_numbers(script)
    return numbers.pop() if len(numbers) == 1 else ask_workers(script, arguments)


def read_numbers(script: Path) -> set[int]:
    """Every constant that a script passes to an `init` as its first argument or as `logical_workers`."""
    try:
        tree = ast.parse(script.read_text(), str(script))
    except (SyntaxError, ValueError) as error:
        raise JobError(f"{script} is no Python script: {error}") from None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    values = [
        value.value
        for call in calls
        if ast.unparse(call.func).split(".")[-1] == "init"
        for value in (*call.args[:1], *(word.value for word in call.keywords if word.arg == "logical_workers"))
        if isinstance(value, ast.Constant)
    ]
    return {value for value in values if isinstance(value, int)}


def ask_workers(script: Path, arguments: Sequence[str]) -> int:
    """The number that a script gives to `springtide.init`, found by running it up to there."""
    command = [sys.executable, __file__, ASK, str(script.resolve()), *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    *_, last = done.stdout.splitlines() or [""]
    if done.returncode or not last.isdigit():
        said = done.stderr.strip().splitlines()
        reason = said[-1] if said else "it ended without a call"
        raise JobError(
            f"{script} did not get to springtide.init(logical_workers=...): {reason}; call it before training, and "
            "give the script its arguments after --"
        )
    return int(last)


def renumber(logical_workers: int) -> None:
    """Make `springtide.init` start this many logical workers, whatever it is asked for."""
    original = run.init

    @functools.wraps(original)
    def init(*_: Any, **options: Any) -> run.Run:
        return original(**{**options, "logical_workers": logical_workers})

    springtide.init = init


def report() -> None:
    """Make `springtide.init` print the number it is given, and end the process."""

    def init(logical_workers: int, *_: Any, **__: Any) -> NoReturn:
        print(f"\n{logical_workers}", flush=True)
        os._exit(0)

    springtide.init = init


def main() -> None:
    """Run the script on the command line."""
    number, script, *arguments = sys.argv[1:]
    if number == ASK:
        report()
    else:
        renumber(int(number))
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
