"""Proof by bits: a script under stock DDP and under other sizes, rescales and kills, compared at every step.

Ties `cases` (which runs), `scripted_jobs` (running them) and `digest_compare` together, and holds the verdict.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from springtide.core.shared_types import Tell
from springtide.errors import JobError, TrainingError
from springtide.training.settings import NO_TRACKERS, Settings
from springtide.verification import renumber
from springtide.verification.cases import Case, plan_reference
from springtide.verification.digest_compare import Difference, Records, check_reference, find_difference, read_records
from springtide.verification.scratch_folders import Scratch, make_scratch
from springtide.verification.scripted_jobs import Host, ScriptedJob, ScriptedRun, follow
from springtide.verification.verdicts import RunOutcome, are_identical

#: From a number of steps to the cases of a run that long.
Plan = Callable[[int], Iterable[Case]]
PATIENCE_S = 600.0
CHECKPOINTS = 8  # per run that is killed, so that a kill loses an eighth of it at most


@dataclass(frozen=True, slots=True)
class CaseResult(RunOutcome[Difference]):
    """What came of one case."""

    steps: int
    #: The steps that it went on from after being killed.
    resumed: tuple[int, ...] = ()
    #: What its processes have warned of, as of a counter that a resume has lost.
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """All outcomes against one reference."""

    reference: str
    outcomes: tuple[CaseResult, ...]

    @property
    def identical(self) -> bool:
        """Whether every case is."""
        return are_identical(self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """The verdict as the document that `springtide verify --json` writes."""
        return {
            "schema": 1,
            "identical": self.identical,
            "reference": self.reference,
            "cases": [outcome_to_json(outcome) for outcome in self.outcomes],
        }


def outcome_to_json(outcome: CaseResult) -> dict[str, Any]:
    """One row of the document."""
    difference = outcome.difference
    return {
        "name": outcome.name,
        "identical": outcome.identical,
        "first_difference": difference and {"step": difference.step, "tensor": difference.tensor},
        "steps": outcome.steps,
        "resumed_from": list(outcome.resumed),
        "warnings": list(outcome.warnings),
        "error": outcome.error,
    }


@dataclass(frozen=True, slots=True)
class VerifiedScript:
    """The script to be verified, and how far."""

    script: Path
    arguments: tuple[str, ...]
    logical_workers: int
    steps: int
    #: Whether a script that ends before so many steps is compared up to its end, or refused.
    to_its_end: bool = False
    #: Variables of devices that differ, by their names (`slot:0`, ...).
    devices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bench:
    """A subject with what all its runs share: a folder, and a host with warm servers that fork their processes."""

    subject: VerifiedScript
    folder: Path
    host: Host


@contextlib.contextmanager
def open_bench(subject: VerifiedScript, host: Host | None = None, shared: Path | None = None) -> Iterator[Bench]:
    """A bench for as long as it is used, on a host that is closed with it; its folder is on shared storage if given."""
    with tempfile.TemporaryDirectory(prefix="springtide-verify-", dir=shared) as name, host or Host() as used:
        yield Bench(subject, Path(name), used)


def verify(
    subject: VerifiedScript, against: str, plan: Plan, tell: Tell, host: Host | None = None, shared: Path | None = None
) -> Proof:
    """The verdict on every case that is planned for the reference's steps, each run and compared with it in turn."""
    with open_bench(subject, host, shared) as bench:
        tell(f"reference: {against}, {subject.steps} steps")
        reference = run_reference(bench, against)
        outcomes = []
        for number, case in enumerate(plan(len(reference))):
            outcomes.append(judge(bench, case, reference, bench.folder / str(number)))
            word = outcomes[-1].word
            tell(f"case {case.name}: {word if outcomes[-1].identical else word.upper()}")
        return Proof(against, tuple(outcomes))


def run_reference(bench: Bench, against: str) -> Records:
    """The records of the run that the others are compared with, checked to be whole and of one mind."""
    traces = bench.folder / "reference"
    run_case(bench, plan_reference(against, bench.subject.logical_workers), traces)
    records = read_records(traces)
    check_reference(records)
    check_steps(records, bench.subject)
    return records


def check_steps(reference: Records, subject: VerifiedScript) -> None:
    """Refuse a script that ends before the steps asked for: equality of fewer steps would prove less."""
    if len(reference) < subject.steps and not subject.to_its_end:
        raise JobError(
            f"the script ended after {len(reference)} steps, but {subject.steps} were asked for; lower --steps, or "
            "let the script train longer"
        )


def judge(bench: Bench, case: Case, reference: Records, traces: Path) -> CaseResult:
    """The outcome of one case; a run that fails is an outcome too."""
    error: str | None = None
    resumed: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    try:
        run = run_case(bench, case, traces)
        resumed, warnings = run.resumed, run.warnings
        check_resumed(case, resumed)
        check_restarts(case, run.restarts.count)
    except TrainingError as failure:
        error = str(failure)
    records = read_records(traces)
    shutil.rmtree(traces, ignore_errors=True)  # a large model's checkpoints would fill the disk case by case
    return CaseResult(case.name, find_difference(reference, records), len(records), resumed, warnings, error=error)


def check_resumed(case: Case, resumed: tuple[int, ...]) -> None:
    """Refuse a run in which a kill was not followed by a resume: starting anew proves nothing about checkpoints."""
    from_steps = [step for step in resumed if step >= 1]
    if len(from_steps) < len(case.kills):
        raise TrainingError(
            f"after {len(case.kills)} kills {len(from_steps)} starts resumed from a step that was saved; each must, or "
            "the case proves nothing"
        )


def check_restarts(case: Case, restarts: int) -> None:
    """Refuse a run that was started again though nobody was killed: what came of it then proves no rescale."""
    if restarts > len(case.kills):
        raise TrainingError(
            f"it was started again {restarts} times for {len(case.kills)} kills: a process failed or waited in vain, "
            "as one that joins does if it gathers anything before its loop. `springtide submit` shows its log"
        )


def run_case(bench: Bench, case: Case, traces: Path) -> ScriptedRun:
    """Run the script as the case says, in a folder of its own, and leave its traces; the run, which is closed."""
    subject = bench.subject
    every = max(1, subject.steps // CHECKPOINTS)
    settings = Settings(
        mode="reference" if case.stock else "elastic",
        logical_workers=subject.logical_workers,
        max_steps=subject.steps,
        trace_dir=traces,
        checkpoint_dir=traces / "checkpoints" if case.kills else None,
        checkpoint_every_steps=min([every, *(step - 1 for step in case.kills)]),
        track=NO_TRACKERS,
    )
    with tempfile.TemporaryDirectory(prefix="s", dir=bench.folder, ignore_cleanup_errors=True) as place:
        scratch = make_scratch(Path(place), (Path.cwd(), subject.script.resolve().parent), os.environ)
        run = follow(make_job(subject, settings, scratch), case.mappings, case.kills, PATIENCE_S, bench.host)
        scratch.check()
        return run


def make_job(subject: VerifiedScript, settings: Settings, scratch: Scratch) -> ScriptedJob:
    """The script as a job in its scratch, through `renumber` unless its text says the number of workers wanted."""
    script = scratch.place(subject.script)
    job = ScriptedJob(script, subject.arguments, scratch.folder, settings, subject.devices, scratch.variables())
    if renumber.read_numbers(script) == {subject.logical_workers}:
        return job
    words = (str(subject.logical_workers), str(script), *subject.arguments)
    return replace(job, script=Path(renumber.__file__), arguments=words)
