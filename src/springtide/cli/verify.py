"""`springtide verify`: prove by bits that a script trains the same on any number of processes."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from springtide.cli.option_groups import flatten, list_given, option, refuse_given
from springtide.cli.outputs import OutputForm, print_rich, tell, tell_legend
from springtide.cli.verify_receipt import ReceiptOptions, verify_receipt
from springtide.cli.verify_stock import StockOptions, verify_stock
from springtide.errors import InputError, JobError

if TYPE_CHECKING:
    from springtide.verification.cases import Case
    from springtide.verification.scripted_jobs import Host
    from springtide.verification.verify import CaseResult, Proof


STEPS = 50
#: Said of an object that is alive in the script, but not part of what a resume or a joining process gets.
LEGEND = (
    "case: how many processes it ran on (3+1: two, with 3 and 1 of the logical workers); "
    "rescale: these sizes in turn; kill: this many processes are killed; bits: of all that is "
    "trained and kept, at every step"
)
UNGIVEN = "alive: run.prepare was not given it, so resumes lose it and joining processes begin it anew; see run.keep"


class Against(StrEnum):
    """What the runs are compared with."""

    DDP = "ddp"
    SELF = "self"


@dataclass(frozen=True, slots=True)
class CaseOptions:
    """What a script is compared with, and the runs that are compared."""

    against: str | None = option(
        None,
        "Stock DDP on N ranks, or our own run in one process; with --stock a recording. [dim]Default: ddp[/]",
        metavar="ddp|self|FILE",
    )
    logical_workers: int | None = option(None, "Default: the script's own number.", min=1, metavar="N")
    sizes: str | None = option(
        None,
        "Processes (2), or logical workers in each (3+1). [dim]Default for N = 4: 4,2,1,2+1+1,3+1[/]",
        metavar="SIZE,...",
    )
    rescale: str | None = option(
        None, "Sizes taken in turn during one run; '' for none. [dim]Default for N = 4: 4,1,3,2[/]", metavar="SIZE,..."
    )
    kill: int | None = option(None, "How often to kill -9 a process in one run. Default: 2.", min=0, metavar="TIMES")
    engine: str = option("local", "Where the processes run: local, or ray (kills then end a whole host).")
    address: str = option("auto", "The Ray cluster, for --engine ray.", metavar="HOST:PORT")
    steps: int | None = option(
        None, "Global steps to compare. Default: 50, or all of the script's if it has fewer.", min=1
    )

    def refuse_others(self, mode: str, *used: str) -> None:
        """Refuse the options that a mode would ignore: all but those that it uses."""
        given = [name for name in list_given(self) if name not in used]
        refuse_given(given, f"{mode} would ignore this; leave it out")


@flatten
def run(
    form: OutputForm,
    stock: StockOptions,
    receipt: ReceiptOptions,
    cases: CaseOptions,
    script: Path = typer.Argument(
        None, metavar="[SCRIPT]", help="A training script that calls springtide.init; with --stock a command."
    ),
    arguments: list[str] = typer.Argument(None, metavar="[-- ARGUMENT...]", help="Arguments of the script."),
) -> None:
    """Compare a script's parameters, optimizer state, buffers and losses by bits at every step.

    The reference is stock DistributedDataParallel on N gloo ranks. Exit code 0 only if every case is identical; on a
    difference the first step and tensor are named. With --stock any command is compared with itself, with another one
    or with a recording, and needs nothing of ours in it.

    Examples:

      springtide verify train.py --steps 20

      springtide verify train.py --sizes 3,2+2 --rescale 4,1 --kill 1 --json verdict.json -- --epochs 2

      springtide verify --stock -- torchrun --nproc-per-node 4 train.py

      springtide verify --receipt receipt.json --from 400
    """
    form.check_writable()
    if receipt.receipt is not None:
        words = [str(word) for word in (script, *(arguments or ())) if word is not None]
        refuse_given([*words, *list_given(stock)], "a receipt names its own command; leave this out")
        cases.refuse_others("--receipt", "--sizes")
        verify_receipt(receipt, cases.sizes, form)
    refuse_given(list_given(receipt), "options of a receipt need --receipt FILE")
    if script is None:
        raise InputError("give a training script; after --stock -- a command, or a receipt with --receipt")
    if stock.stock:
        cases.refuse_others("--stock", "--against", "--steps")
        verify_stock([str(script), *(arguments or ())], stock, cases.against, cases.steps, form)
    refuse_given(list_given(stock), "options of recordings go with --stock")
    verify_script(script, tuple(arguments or ()), cases, form)


def verify_script(script: Path, words: tuple[str, ...], asked: CaseOptions, form: OutputForm) -> NoReturn:
    """Compare the runs of a script of ours, show the verdict, and end with its exit code."""
    from springtide.verification.renumber import find_workers
    from springtide.verification.verify import VerifiedScript, verify

    if not script.is_file():
        raise JobError(f"script {script} does not exist; give the path of a training script")
    reference = choose_reference(asked.against)
    workers = asked.logical_workers or find_workers(script, words)
    plan = partial(plan_runs, asked, workers)
    subject = VerifiedScript(script, words, workers, asked.steps or STEPS, to_its_end=asked.steps is None)
    plan(subject.steps)  # what cannot be planned is refused before anything runs
    if asked.engine == "local":
        if asked.address != CaseOptions().address:
            raise InputError(f"--address {asked.address} goes with --engine ray")
        verdict = verify(subject, reference.value, plan, tell)
    else:
        host, shared = open_cluster(asked.engine, asked.address, workers)
        verdict = verify(subject, reference.value, plan, tell, host, shared)
    if not form.write(verdict.to_json()):
        print_table(verdict)
    raise typer.Exit(0 if verdict.identical else 1)


def plan_runs(asked: CaseOptions, workers: int, count: int) -> "list[Case]":
    """The runs of so many steps that the options ask for, else those that suit the number of logical workers."""
    from springtide.verification import cases

    return cases.plan_cases(
        cases.choose_sizes(workers) if asked.sizes is None else asked.sizes,
        cases.choose_rescale(workers, count) if asked.rescale is None else asked.rescale,
        min(2, count - 1) if asked.kill is None else asked.kill,
        workers,
        count,
    )


def open_cluster(engine: str, address: str, workers: int) -> "tuple[Host, Path]":
    """The hosts of a cluster, and the folder that they share: the state directory."""
    from springtide.control.storage.state_dir import find_home
    from springtide.verification.cluster_host import ClusterHost

    if engine != "ray":
        raise InputError(f"engine {engine!r} is not known to verify; there are: local, ray")
    shared = find_home().make().root
    return ClusterHost(address, shared, workers), shared


def choose_reference(against: str | None) -> Against:
    """What a script of ours is compared with."""
    if against is not None and against not in list(Against):
        raise InputError(f"--against {against}: give ddp or self; a recording goes with --stock")
    return Against(against or Against.DDP)


def print_table(verdict: "Proof") -> None:
    """Show every case, and one line that says it all."""
    from rich.table import Table

    table = Table("case", "steps", "bits", "first difference", title=f"reference: {verdict.reference}")
    for outcome in verdict.outcomes:
        mark = f"[{'green' if outcome.identical else 'red'}]{outcome.word}[/]"
        table.add_row(name_case(outcome), str(outcome.steps), mark, describe(outcome))
    print_rich(table)
    tell_legend(LEGEND)
    if any(one.difference is not None and one.difference.tensor.startswith("alive") for one in verdict.outcomes):
        print(UNGIVEN)
    for warning in dict.fromkeys(text for outcome in verdict.outcomes for text in outcome.warnings):
        print(f"warning: {warning}")
    same = sum(outcome.identical for outcome in verdict.outcomes)
    print(f"{same} of {len(verdict.outcomes)} cases identical to the reference at every step")


def describe(outcome: "CaseResult") -> str:
    """Where a case first differs, or why it ended early."""
    if outcome.error is not None:
        return outcome.error
    if outcome.difference is None:
        return ""
    return f"step {outcome.difference.step}, {outcome.difference.tensor}"


def name_case(outcome: "CaseResult") -> str:
    """A case's name, and where it went on after being killed."""
    if not outcome.resumed:
        return outcome.name
    steps = ", ".join(map(str, outcome.resumed))
    return f"{outcome.name} (resumed from step{'s' if len(outcome.resumed) > 1 else ''} {steps})"
