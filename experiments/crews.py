"""A supervisor whose processes can be of several emulated device types, and of which any may be replaced.

One CPU stands for several device types by what its libraries are told before their first operator: the same program
then rounds differently, as on another GPU. Nothing here is part of the product: experiments drive jobs with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from springtide.errors import RescaleError
from springtide.training.group.rosters import Roster, make_roster
from springtide.training.verification.supervision import ScriptedJob, Supervisor

# Emulated device type -> variables; these were seen to change bits, not random numbers (specification, section 5).
DEVICE_TYPES: Mapping[str, Mapping[str, str]] = {
    "V100": {},
    "P100": {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
}


class Crew(Supervisor):
    """The processes of one job, each on a device type of its own."""

    def __init__(self, job: ScriptedJob, fork_socket: Path | None = None) -> None:
        super().__init__(job, fork_socket=fork_socket)
        self.types: dict[str, str] = {}

    def __enter__(self) -> "Crew":
        return self

    def begin(self, places: Sequence[tuple[str, int]]) -> None:
        """Start processes on these (device type, logical workers)."""
        self.types = {f"p{self.named + rank}": kind for rank, (kind, _) in enumerate(places)}
        self.start([workers for _, workers in places])

    def spawn(self, name: str, roster: Roster, joining: bool) -> None:
        """Fork a process with its device type's variables."""
        variables = DEVICE_TYPES[self.types.get(name, "V100")]
        self.job = replace(self.job, environment={**self.job.environment, **variables})
        super().spawn(name, roster, joining)
        self.job = replace(self.job, environment={})

    def change(self, places: Sequence[tuple[str, int]], keep: int) -> None:
        """Go over to these places in place: the first `keep` processes stay, all others are new."""
        if self.next_roster is not None:
            raise RescaleError("a rescale is under way; wait for its `resized` event before asking for the next")
        self.generation += 1
        kept = list(self.roster.names[:keep])
        joiners = [self.new_name() for _ in places[keep:]]
        self.types |= {name: kind for name, (kind, _) in zip(joiners, places[keep:], strict=True)}
        self.next_roster = make_roster([workers for _, workers in places], kept + joiners)
        for name in joiners:
            self.spawn(name, self.next_roster, joining=True)
        self.command(do="rescale", generation=self.generation, roster=str(self.next_roster))
