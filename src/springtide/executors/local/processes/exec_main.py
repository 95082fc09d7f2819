"""Becomes a command that is not `python script.py`: `python -m package`, or any program. Run by the fork server.

The process keeps its number, so the agent watches and ends it like any other; it only starts cold.
"""

import os
import sys


def main() -> None:
    """Replace this process by the command in its arguments."""
    sys.stdout.flush()
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        print(f"error: command {sys.argv[1]!r} cannot be run: {error.strerror}; check `run` and PATH", file=sys.stderr)
        raise SystemExit(127) from None


if __name__ == "__main__":
    main()
