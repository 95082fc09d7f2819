"""What a script that has failed said last, in a line: of a traceback the error and where the script raised it. Pure."""

import re
from collections.abc import Sequence
from pathlib import Path

#: Lines to look at: tracebacks are long.
REACH = 60
MOST_LINES = 5
#: How a refusal of ours begins, and how long it may be: it says what to write instead, in lines of code.
REFUSAL = "error: "
MOST_REFUSED = 10
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_MARKER = re.compile(r"[\^~ ]+")
#: Frames that are not the user's.
_OTHERS = ("<frozen", "/site-packages/", "/dist-packages/", f"{Path(__file__).parents[3]}/")
#: An error as Python prints it, and no line of code.
_ERROR = re.compile(r"[A-Za-z_][\w.]*(: .*)?")


def sum_up(lines: Sequence[str]) -> str:
    """The last words among the last lines of a log, which have no spaces around them; empty where there are none."""
    begin = next((n for n in reversed(range(len(lines))) if lines[n].startswith("Traceback (most recent call")), None)
    last = range(max(0, len(lines) - MOST_REFUSED), len(lines))
    refused = next((n for n in reversed(last) if lines[n].startswith(REFUSAL)), None)
    if refused is not None and (begin is None or refused > begin):
        return " | ".join(lines[refused:]).removeprefix(REFUSAL)
    if begin is None:
        return " | ".join(lines[-MOST_LINES:])
    frames = [(n, found) for n in range(begin, len(lines)) if (found := _FRAME.match(lines[n]))]
    if not frames:
        return " | ".join(lines[begin:][-MOST_LINES:])
    rest = [line for line in lines[frames[-1][0] + 1 :] if not _MARKER.fullmatch(line)]
    # The line of code comes first, where its file can be read.
    error = rest if len(rest) < 2 or _ERROR.fullmatch(rest[0]) else rest[1:]
    own = [found for _, found in frames if not any(part in found["file"] for part in _OTHERS)]
    where = f" ({own[-1]['file']}, line {own[-1]['line']})" if own else ""
    return " | ".join(error[:MOST_LINES]) + where
