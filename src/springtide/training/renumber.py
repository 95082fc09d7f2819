"""Runs a script with another number of logical workers than its text says: `renumber.py N SCRIPT [ARGUMENT ...]`.

For `springtide verify --logical-workers` and the benchmarks, which try one script with several N. A job is never run
this way: its number is part of what it trains.
"""

import functools
import runpy
import sys
from pathlib import Path
from typing import Any

import springtide
from springtide.training import runtime


def renumber(logical_workers: int) -> None:
    """Make `springtide.init` start this many logical workers, whatever it is asked for."""
    original = runtime.init

    @functools.wraps(original)
    def init(*_: Any, **options: Any) -> runtime.Run:
        return original(**{**options, "logical_workers": logical_workers})

    springtide.init = init


def main() -> None:
    """Run the script on the command line."""
    number, script, *arguments = sys.argv[1:]
    renumber(int(number))
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
