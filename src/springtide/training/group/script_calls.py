"""Calls of a script that all processes make together: `run.mean`, `run.sum`, `shard.gather`.

They have a group of their own, opened where a generation makes the first. In that of the reductions a call that one
process makes alone would meet what the others do next: bytes of another size, by which torch ends the process. Here it
waits, and `peers` tells why.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from springtide.training.group.groups import Group, open_group

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun


class ScriptCalls:
    """The group for such calls, of the present generation."""

    def __init__(self, run: "ElasticRun") -> None:
        self.run = run
        self.group: Group | None = None
        self.generation = -1

    @contextlib.contextmanager
    def make(self) -> Iterator[Group | None]:
        """Make a call: with the group for it, or none in a process alone."""
        run = self.run
        if run.group is None or run.peers is None:
            yield run.group
            return
        # In half steps: after the turns of a step, or behind its boundary.
        with run.peers.ask(2 * run.position.step + (run.step is not None)):
            yield self.find_group()

    def find_group(self) -> Group:
        """The group, opened if this generation has none."""
        run = self.run
        if self.group is None or self.generation != run.generation:
            if self.group is not None:
                self.group.close()
            held: Any = run.store  # torch's stubs know of no clones
            # By a line of its own: that of the run is needed while the others are waited for.
            store, timeout_s = held.clone(), run.settings.collective_timeout_s
            size, name = len(run.roster.names), f"{run.generation}/calls"
            self.group, self.generation = (
                open_group(run.backend, store, run.rank, size, name, timeout_s),
                run.generation,
            )
        return self.group
