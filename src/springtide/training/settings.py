"""What a training process is told from outside: every environment variable it reads, parsed once.

The variables are set by our launcher and executors; `torchrun`'s own are understood too. A script started by hand
with none of them runs alone, with all logical workers in its one process.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from springtide.errors import JobError
from springtide.training.group.rosters import Roster, make_roster, parse_roster, spread

PREFIX = "SPRINGTIDE_"
#: As `track`: no tracker, whatever the script says.
NO_TRACKERS = "none"


@dataclass(frozen=True, slots=True)
class Settings:
    """What one training process is told; each field is the variable SPRINGTIDE_<FIELD IN CAPITALS>."""

    #: This process's name, kept for its life.
    process: str = "p0"
    #: `name:workers,...` of the generation this process starts in.
    roster: str | None = None
    #: Number of that generation; each rescale raises it by one or more.
    generation: int = 0
    #: Whether this process joins a running job and receives its state from the others.
    joining: bool = False
    #: `host:port` of the TCPStore that outlives every generation.
    store: str | None = None
    #: `unix:/path` or `tcp:host:port` of the supervisor: events go out, commands come in, as JSON lines.
    control: str | None = None
    #: Logical workers by the job file; must agree with the script.
    logical_workers: int | None = None
    #: Determinism level by the job file: D0, D1 or D2.
    level: str | None = None
    #: Threads per process; a constant of the job, because bits depend on it.
    threads: int = 1
    #: `elastic`, or `reference`: stock DistributedDataParallel with one rank per logical worker.
    mode: str = "elastic"
    #: Stop after this many global steps (the job file's `steps:`).
    max_steps: int | None = None
    checkpoint_dir: Path | None = None
    #: Seconds between periodic checkpoints; 0 turns them off.
    checkpoint_every_s: float = 300.0
    #: Global steps between periodic checkpoints; 0 turns them off.
    checkpoint_every_steps: int = 0
    checkpoint_keep: int = 2
    #: Object storage for the checkpoints (`s3://bucket/folder`); in `checkpoint_dir` are then only receipts of them.
    checkpoint_url: str | None = None
    #: Which start of the job this is, where another could still be running unseen; 0: none could.
    checkpoint_generation: int = 0
    #: The step that is known to be saved: a run that finds no checkpoint then must not begin at 0.
    checkpoint_saved: int = 0
    #: Folders in this host's memory: for copies of the state, and of the start before, which may have left one.
    memory_dir: Path | None = None
    memory_before: Path | None = None
    #: The last step of that start of which anybody heard: what was recorded after it was lost with its host.
    memory_heard: int = 0
    allow_code_change: bool = False
    #: Folder for the results of the script; `run.output_dir`.
    output: Path | None = None
    #: Object storage to which that folder is copied when the run ends (`s3://bucket/folder`).
    output_url: str | None = None
    #: Folder for per-step digests of every tensor, for `springtide verify`.
    trace_dir: Path | None = None
    #: File for the chain of digests that a receipt is made of; and the only steps (`3,6`) that it links, if any.
    chain: Path | None = None
    chain_at: str = ""
    #: Steps (`3,6`) after which rank 0 says `held` and waits for the supervisor's `go`: fixed points for kills and
    #: rescales in `verify` and tests.
    hold_at: str = ""
    #: Trackers, joined by commas, in place of those that the script names; or `NO_TRACKERS`.
    track: str = ""
    #: A collective that waits longer than this has lost a peer.
    collective_timeout_s: float = 60.0


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings written in the environment."""
    source = os.environ if environ is None else environ
    given = {key[len(PREFIX) :].lower(): value for key, value in source.items() if key.startswith(PREFIX)}
    annotations = Settings.__annotations__
    fields = {name: parse_field(name, given[name], str(annotations[name])) for name in annotations if name in given}
    return Settings(**fields)  # type: ignore[arg-type]


def parse_field(name: str, text: str, annotation: str) -> object:
    """One variable's value in the type of its field."""
    try:
        if "bool" in annotation:
            return text not in ("", "0", "false")
        if "Path" in annotation:
            return Path(text)
        if "int" in annotation:
            return int(text)
        if "float" in annotation:
            return float(text)
    except ValueError:
        raise JobError(f"environment variable {PREFIX}{name.upper()} is {text!r}; it must be a number") from None
    return text


def write_settings(settings: Settings) -> dict[str, str]:
    """The environment variables that say these settings; defaults are left out."""
    default = Settings()
    named = {name: getattr(settings, name) for name in Settings.__annotations__}
    return {
        PREFIX + name.upper(): str(int(value)) if isinstance(value, bool) else str(value)
        for name, value in named.items()
        if value != getattr(default, name)
    }


def find_roster(settings: Settings, logical_workers: int, environ: Mapping[str, str]) -> tuple[Roster, str]:
    """The roster this process starts in, and its own name there.

    Ours if the launcher wrote one; else torchrun's WORLD_SIZE processes share the logical workers evenly; else
    this process alone holds them all.
    """
    if settings.roster is not None:
        return parse_roster(settings.roster), settings.process
    if "RANK" in environ and "WORLD_SIZE" in environ:
        return make_roster(spread(logical_workers, int(environ["WORLD_SIZE"]))), f"p{environ['RANK']}"
    return make_roster(spread(logical_workers, 1), [settings.process]), settings.process
