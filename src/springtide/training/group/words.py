"""Rank 0's word about a step's boundary: a few integers that travel with its buffers while gradients are reduced.

All processes wait for the reduction anyway, so nobody waits for the word. It is said when rank 0's turns have ended:
what its script asks for after them is in the next one. A step that nobody walks has no reduction, and its word comes by
itself.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from springtide.errors import JobError
from springtide.training.group.agreement import Action
from springtide.training.state import checkpointing

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun


@dataclass(frozen=True, slots=True)
class Verdict:
    """What rank 0 says about a boundary: what to do, and what the others need to know for it."""

    action: Action
    #: The generation to change to, if the action says so.
    generation: int
    #: How many metrics the step has, and a number that stands for their names.
    form: tuple[int, int]
    #: Where rank 0 will stand: epoch, steps in it, steps in all. The others must stand there too.
    position: tuple[int, int, int]


#: Integers of a verdict.
VERDICT_SIZE = 7


def write_verdict(verdict: Verdict, place: torch.Tensor) -> None:
    """Put a verdict where it travels from."""
    place.copy_(torch.tensor([int(verdict.action), verdict.generation, *verdict.form, *verdict.position]))


def read_verdict(place: torch.Tensor) -> Verdict:
    """The verdict that has come."""
    word, generation, count, names, epoch, step_in_epoch, step = place.tolist()
    return Verdict(Action(word), generation, (count, names), (epoch, step_in_epoch, step))


def say(run: "ElasticRun") -> None:
    """Rank 0's part: decide, once in a step, and put the word in its place.

    A step that is walked again says the same, with the metrics that it has by then, and a stop that came since.
    """
    if not run.is_main:
        run.agreement.forward_termination()
        return
    assert run.step is not None
    is_stopped = run.stop_reason is not None or run.wish is not None
    verdict = decide(run, is_stopped) if not run.step.walks else repeat(run, is_stopped)
    write_verdict(verdict, run.turns.word)


def repeat(run: "ElasticRun", is_stopped: bool) -> Verdict:
    """What was said of the step in its walk before."""
    action = run.verdict.action | (Action.STOP if is_stopped else Action.NOTHING)
    return replace(run.verdict, action=action, form=run.metrics.form)


def decide(run: "ElasticRun", is_stopped: bool) -> Verdict:
    """What rank 0 decides for the boundary of the step that is under way."""
    after = run.position.after_step()
    writing = checkpointing.is_writing(run)
    action = run.agreement.decide(run.roster, after.step, is_stopped, writing)
    if run.group is not None and (Action.CHECKPOINT in action or run.divergence.is_due()):
        action |= Action.COMPARE
    action |= checkpointing.choose_copy(run, action)
    change = run.agreement.change
    generation = change.generation if change is not None and Action.RESCALE in action else 0
    return Verdict(action, generation, run.metrics.form, (after.epoch, after.step_in_epoch, after.step))


def hear(run: "ElasticRun") -> Verdict:
    """Everyone's part, when the word has come: rank 0 must stand where this process does.

    A stop is known to all from here on, so that all leave the boundary in the same way.
    """
    verdict, after = read_verdict(run.turns.word), run.position.after_step()
    position = (after.epoch, after.step_in_epoch, after.step)
    if verdict.position != position:
        raise JobError(
            f"process {run.name} is at (epoch, step in it, step) {position}, the first process at {verdict.position}; "
            "the loop over the loader must be the same on every process. The usual cause is a count or a decision in a "
            "variable of yours, which a process that joins does not have: keep it in run.state, or take step.index, "
            "step.number or run.mean(...)"
        )
    if Action.STOP in verdict.action:
        run.stop_reason = run.stop_reason or run.wish or "stopped by the supervisor"
    run.wish = None
    return verdict
