"""`springtide verify --stock`: compare runs of any training command, without a changed line in it."""

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from springtide.cli.option_groups import option
from springtide.cli.outputs import OutputForm, check_writable, print_rich, tell, tell_legend, write_text
from springtide.errors import InputError

if TYPE_CHECKING:
    from springtide.verification.stock.recorded_runs import RecordOptions
    from springtide.verification.stock.step_recordings import StepRecording
    from springtide.verification.stock.stock_verify import StockOutcome, StockVerdict

STOCK = "Any training command (--stock)"


@dataclass(frozen=True, slots=True)
class StockOptions:
    """The options of `verify --stock`."""

    stock: bool = option(
        False,
        "Compare runs of any command that trains with torch.optim, as it is: after -- what you would type.",
        "--stock",
        rich_help_panel=STOCK,
    )
    against_command: str | None = option(
        None,
        "Another command to compare with, quoted: 'torchrun --nproc-per-node 2 train.py'.",
        metavar="COMMAND",
        rich_help_panel=STOCK,
    )
    record: Path | None = option(
        None, "Run once and keep the recording; another day: --against FILE.", metavar="FILE", rich_help_panel=STOCK
    )
    times: int = option(2, "Runs of the command when it is compared with itself.", min=2, rich_help_panel=STOCK)
    every: int = option(
        1, "Digest the parameters only every this many steps.", min=1, metavar="STEPS", rich_help_panel=STOCK
    )
    in_place: bool = option(
        False, "Run in this folder instead of in a copy of it for each run.", "--in-place", rich_help_panel=STOCK
    )


def verify_stock(
    command: list[str], options: StockOptions, against: str | None, steps: int | None, form: OutputForm
) -> NoReturn:
    """Do what the options say, show it, and end with its exit code."""
    from springtide.verification.stock.recorded_runs import RecordOptions

    check_choice(options, against)
    how = RecordOptions(options.every, steps or 0, options.in_place)
    if options.record is not None:
        keep(options.record, command, how, form)
    verdict = compare(command, options, how, against)
    if not form.write(verdict.to_json()):
        show(verdict)
    raise typer.Exit(0 if verdict.identical else 1)


def check_choice(options: StockOptions, against: str | None) -> None:
    """Refuse options that exclude each other."""
    given = [
        name
        for name, value in (
            ("--record", options.record),
            ("--against", against),
            ("--against-command", options.against_command),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} cannot go together; record first, then compare with the file")
    if given and options.times != StockOptions().times:
        raise InputError(f"--times: with {given[0]} the command runs once; leave one of the two out")
    if options.record is not None:
        check_writable(options.record, "--record")


def record_once(command: list[str], how: "RecordOptions") -> "StepRecording":
    """One recorded run of a command."""
    from springtide.verification.stock.recorded_runs import record

    return record(command, how, tell, os.environ)


def keep(file: Path, command: list[str], how: "RecordOptions", form: OutputForm) -> NoReturn:
    """Write the recording of one run, say what it holds, and end."""
    from springtide.verification.stock.step_recordings import recording_to_json
    from springtide.verification.stock.stock_verify import describe_recording

    tell(f"recording: {shlex.join(command)}")
    recording = record_once(command, how)
    write_text(json.dumps(recording_to_json(recording)) + "\n", str(file))
    facts = describe_recording(str(file), recording)
    if not form.write({"schema": 1, "recorded": facts}):
        again = f"springtide verify --stock --against {shlex.quote(str(file))} -- {shlex.join(command)}"
        print(f"{file}: {say_size(facts)}; {say_overhead(recording)}")
        print(f"compare another run with it: {again}")
    raise typer.Exit


def compare(command: list[str], options: StockOptions, how: "RecordOptions", against: str | None) -> "StockVerdict":
    """The verdict on the runs that the options ask for."""
    from springtide.verification.stock.step_recordings import load_recording
    from springtide.verification.stock.stock_verify import compare_repetitions, compare_with

    def record(words: Any) -> "StepRecording":
        return record_once(list(words), how)

    if against is not None:
        reference = load_recording(Path(against))
        if reference.every != how.every:
            raise InputError(
                f"{against} has digests after every {reference.every} steps, --every says {how.every}; give the same"
            )
        return compare_with(against, reference, command, record, tell)
    if options.against_command is not None:
        other = shlex.split(options.against_command)
        tell(f"reference: {options.against_command}")
        return compare_with(options.against_command, record(other), command, record, tell)
    return compare_repetitions(command, options.times, record, tell)


def show(verdict: "StockVerdict") -> None:
    """A table of the runs, what differs in what they ran on, and one line that says it all."""
    from rich.table import Table

    from springtide.verification.stock.stock_verify import describe_recording

    facts = describe_recording(verdict.name, verdict.reference)
    table = Table("run", "ranks", "steps", "bits", "first difference", title=f"reference: {verdict.name}")
    table.add_row(verdict.name, str(facts["ranks"]), str(facts["steps"]), "reference", "")
    for outcome in verdict.outcomes:
        table.add_row(*make_row(outcome))
    print_rich(table)
    tell_legend("ranks: processes of the run; bits: of all that was recorded at every step, against the reference")
    for line in list_notes(verdict):
        print(line)


def make_row(outcome: "StockOutcome") -> tuple[str, str, str, str, str]:
    """One run in the table."""
    from springtide.verification.stock.stock_verify import say_difference

    if outcome.recording is None:
        return outcome.name, "-", "-", "[red]failed[/]", ""
    ranks = {rank.rank for rank in outcome.recording.ranks}
    mark = "[green]identical[/]" if outcome.identical else "[red]different[/]"
    most = max(len(rank.optimizers) for rank in outcome.recording.ranks)
    said = "" if outcome.difference is None else say_difference(outcome.difference, most)
    return outcome.name, str(len(ranks)), str(outcome.recording.steps), mark, said


def list_notes(verdict: "StockVerdict") -> list[str]:
    """What belongs under the table: errors, other environments, ranks that do not agree, the cost, the verdict."""
    recordings = [verdict.reference, *(one.recording for one in verdict.outcomes if one.recording is not None)]
    notes = [f"{outcome.name}: {outcome.error}" for outcome in verdict.outcomes if outcome.error is not None]
    notes += list(list_changes(verdict))
    notes += list_ranks_apart(verdict)
    worst = max(recordings, key=lambda recording: recording.overhead)
    same = sum(outcome.identical for outcome in verdict.outcomes)
    total = len(verdict.outcomes)
    return [
        *notes,
        f"{say_overhead(worst)} at most",
        f"{same} of {total} run{'s' if total > 1 else ''} identical to the reference: every parameter, every step, "
        "every rank",
    ]


def list_changes(verdict: "StockVerdict") -> list[str]:
    """How a run's environment differs from the reference's."""
    before = verdict.reference.environment
    return [
        f"{outcome.name}: {name} {before.get(name)} -> {value}"
        for outcome in verdict.outcomes
        if outcome.recording is not None
        for name, value in outcome.recording.environment.items()
        if before.get(name) != value
    ]


def list_ranks_apart(verdict: "StockVerdict") -> list[str]:
    """Say where the ranks of the reference are not replicas of each other."""
    from springtide.verification.stock.recording_compare import find_rank_that_differs
    from springtide.verification.stock.stock_verify import say_difference

    within = find_rank_that_differs(verdict.reference)
    if within is None:
        return []
    return [f"the reference's own ranks hold other values (shards, or not synchronised): {say_difference(within, 2)}"]


def say_size(facts: dict[str, Any]) -> str:
    """How much a recording holds."""
    return f"{facts['steps']} steps on {facts['ranks']} rank{'s' if facts['ranks'] > 1 else ''}"


def say_overhead(recording: "StepRecording") -> str:
    """What recording cost the script."""
    return f"recording took {100 * recording.overhead:.1f} % of the training time"
