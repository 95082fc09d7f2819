"""Lightning's counts of what an update does, which every turn changes and which must change once per update."""

from typing import Any


class TurnCounts:
    """One of Lightning's progresses during the turns of a step: each turn leaves it as it was, all count once."""

    def __init__(self, progress: Any) -> None:
        self.progress = progress
        self.before = self.after = progress.state_dict()

    def put_back(self) -> None:
        """After a turn: leave alone what all logical workers have in common."""
        self.after = self.progress.state_dict()
        self.progress.load_state_dict(self.before)

    def count(self) -> None:
        """After all turns: count what each of them has."""
        self.progress.load_state_dict(self.after)
