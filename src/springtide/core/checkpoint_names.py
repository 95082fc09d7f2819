"""How a checkpoint is called: by its step and, where several hosts could write, by who wrote it.

`step-000000400` is written by a process that nobody can replace unseen. `step-000000400-g12-9f3c52d1` is by the writer
9f3c52d1 of a job's generation 12: one that was cut off and replaced writes under another name, and what it writes later
counts less than anything of a newer generation.
"""

import re
from dataclasses import dataclass

#: A number of more digits is nobody's step.
PATTERN = re.compile(r"step-(?P<step>[0-9]{1,12})(?:-g(?P<generation>[0-9]{1,15})-(?P<writer>[0-9a-f]{1,32}))?")


@dataclass(frozen=True, slots=True, order=True)
class CheckpointName:
    """The name of a checkpoint; a greater one is newer."""

    generation: int
    step: int
    writer: str = ""

    def __str__(self) -> str:
        plain = f"step-{self.step:09d}"
        return f"{plain}-g{self.generation}-{self.writer}" if self.writer else plain


def parse_name(text: str) -> CheckpointName | None:
    """The name that a folder has; None if it is not a checkpoint's."""
    match = PATTERN.fullmatch(text)
    if match is None:
        return None
    return CheckpointName(int(match["generation"] or 0), int(match["step"]), match["writer"] or "")
