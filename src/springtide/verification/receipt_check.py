"""A receipt put to the proof: a segment of the run is trained again, and every link of its chain there compared.

The code is that of the current folder, in a copy of it; what it was when the receipt was written is one of the facts
that are compared. Where a checkpoint at or before the segment is given the run begins there, else at step 0.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide.core.receipt_format import MOST_ON, ON, Verification, check_chain, list_links
from springtide.errors import InputError
from springtide.training.group.rosters import parse_size
from springtide.training.settings import NO_TRACKERS, Settings
from springtide.training.state.state_chain import read_chain
from springtide.verification.scratch_folders import make_scratch
from springtide.verification.scripted_jobs import Host, ScriptedJob, find_saved, follow

PATIENCE_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class StepRange:
    """What of a receipt is trained again: links of steps from `first` to `last`, from a checkpoint if one is given."""

    first: int
    last: int
    #: A checkpoint at or before the first step, and its step; else the run begins at 0.
    checkpoint: Path | None = None
    start: int = 0


@dataclass(frozen=True, slots=True)
class ReceiptVerdict:
    """Whether a segment of a receipt holds."""

    segment: StepRange
    #: Steps whose digests were compared.
    compared: tuple[int, ...]
    #: The first of them whose state is another; None if all are the same.
    first_difference: int | None
    #: Facts of the run that are others now, as (then, now): code, seed, ...
    changed_facts: Mapping[str, tuple[Any, Any]]
    #: The same of what it ran on, which may differ and the receipt still hold.
    changed_environment: Mapping[str, tuple[Any, Any]]
    #: What it was trained on now.
    on: str = ""

    @property
    def holds(self) -> bool:
        """Whether the same thing was run, and every state compared is the same by bits."""
        return bool(self.compared) and self.first_difference is None and not self.changed_facts

    def summarise(self) -> Verification:
        """What the server that sealed the receipt may keep of it."""
        first, last = self.compared[0], self.compared[-1]
        return Verification(self.holds, len(self.compared), first, last, self.first_difference, self.on)

    def to_json(self) -> dict[str, Any]:
        """The document of `springtide verify --receipt -o json`."""
        return {
            "schema": 1,
            "holds": self.holds,
            "from_step": self.segment.start,
            "compared_steps": list(self.compared),
            "first_difference": self.first_difference,
            "changed_facts": {name: list(both) for name, both in self.changed_facts.items()},
            "changed_environment": {name: list(both) for name, both in self.changed_environment.items()},
        }


def choose_segment(receipt: Mapping[str, Any], first: int, last: int | None, checkpoints: Path | None) -> StepRange:
    """The segment that is asked for, up to its last link, or to the first after it; refused where there is none.

    When there are links is up to the clock of the run: on a fast machine the first may be dozens of steps away.
    """
    steps = [step for step, _ in list_links(receipt)]
    end = steps[-1] if last is None and steps else last or 0
    inside = [step for step in steps if first <= step <= end] or [step for step in steps if step > end >= first][:1]
    if not inside:
        raise InputError(
            f"the receipt has no digest of a step from {first} to {end}; it has some from {min(steps, default=0)} to "
            f"{max(steps, default=0)}"
        )
    if checkpoints is None:
        return StepRange(first, inside[-1])
    # At least one step must be taken, or nothing but the checkpoint itself would be compared.
    saved = find_saved(checkpoints)
    usable = [step for step in sorted(saved) if step <= first and step < inside[-1]]
    if not usable:
        raise InputError(
            f"{checkpoints} has no checkpoint of a step up to {first}; fetch one with --whole, or leave it out"
        )
    return StepRange(first, inside[-1], saved[usable[-1]], usable[-1])


def check_receipt(receipt: Mapping[str, Any], segment: StepRange, size: str, tell: Any) -> ReceiptVerdict:
    """Train a segment of a receipt again on so many processes, and compare."""
    facts = receipt["chain"][0]["facts"]
    links = {step: state for step, state in list_links(receipt) if segment.start <= step <= segment.last}
    tell(f"training steps {segment.start + 1} to {segment.last} again on {size} process(es)")
    with tempfile.TemporaryDirectory(prefix="springtide-receipt-", ignore_cleanup_errors=True) as name:
        lines = run_segment(Path(name), receipt["job"]["run"], facts, segment, sorted(links), size)
    check_chain(lines)
    found = {line["step"]: line["state"] for line in lines if "state" in line}
    compared = tuple(step for step in sorted(links) if step >= segment.first or step == segment.start)
    differing = [step for step in compared if found.get(step) != links[step]]
    return ReceiptVerdict(
        segment,
        compared,
        min(differing, default=None),
        compare_facts(facts, lines[0]["facts"]),
        compare_facts(receipt["chain"][0]["environment"], lines[0]["environment"]),
        name_place(size, lines[0]["environment"]["device"]),
    )


def name_place(size: str, device: str) -> str:
    """What something was trained on, as far as it may be told to a server."""
    told = f"{size} process{'' if size == '1' else 'es'}, {device}"
    return " ".join(" ".join(ON.findall(told)).split())[:MOST_ON]


def run_segment(
    place: Path, words: Sequence[str], facts: Mapping[str, Any], segment: StepRange, steps: Sequence[int], size: str
) -> list[dict[str, Any]]:
    """The chain of a segment that is trained again, with links at these steps."""
    script, arguments = find_script(words)
    scratch = make_scratch(place / "scratch", (Path.cwd(),), os.environ)
    saved = place / "checkpoints"
    saved.mkdir()
    if segment.checkpoint is not None:
        shutil.copytree(segment.checkpoint, saved / segment.checkpoint.name)
    settings = Settings(
        logical_workers=facts["logical_workers"],
        level=facts["level"],
        threads=facts["threads"],
        max_steps=segment.last,
        checkpoint_dir=saved,
        checkpoint_every_s=0.0,
        allow_code_change=True,  # it is compared, and said
        chain=place / "chain.jsonl",
        chain_at=",".join(map(str, steps)),
        track=NO_TRACKERS,
    )
    job = ScriptedJob(scratch.folder / script, arguments, scratch.folder, settings, variables=scratch.variables())
    with Host() as host:
        follow(job, [(0, parse_size(size, facts["logical_workers"]))], timeout_s=PATIENCE_S, host=host)
    return read_chain(place / "chain.jsonl")


def find_script(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The script of a job's command in this folder, and its arguments."""
    if len(words) < 2 or not words[1].endswith(".py"):
        raise InputError(
            f"the receipt is of `{' '.join(words)}`; only `python SCRIPT.py ...` can be trained again here"
        )
    if not Path(words[1]).is_file():
        raise InputError(f"the receipt is of {words[1]}, which is not in this folder; go to the folder of its code")
    return words[1], tuple(words[2:])


def compare_facts(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What is not the same any more."""
    names = sorted(then.keys() | now.keys())
    return {name: (then.get(name), now.get(name)) for name in names if then.get(name) != now.get(name)}
