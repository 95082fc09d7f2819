"""When a run adds to its chain: at its start or resume, now and then, at every checkpoint and at its end.

Only rank 0 does, and only where a file was asked for (`settings.chain`); what a chain is says `state_chain`. Of a
sharded state all processes give their rows, so there is a link only where all know of it: not now and then, by the
clock of one.
"""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from springtide.training.settings import Settings
from springtide.training.state.digests import name_tensors
from springtide.training.state.state_chain import (
    ChainPlan,
    Named,
    StateChain,
    describe_environment,
    digest_state,
    find_fingerprint,
)

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun


def open_chain(settings: Settings) -> StateChain | None:
    """The run's chain, if it is to have one."""
    if settings.chain is None:
        return None
    return StateChain(settings.chain, ChainPlan(frozenset(int(step) for step in settings.chain_at.split(",") if step)))


def begin(run: "ElasticRun") -> None:
    """Write what is run, or that it was resumed."""
    if run.chain is None:
        return
    if not run.position.step:
        if run.is_main:
            run.chain.begin(describe(run))
    elif takes_part(run):
        state = digest_state(list_state(run))
        if run.is_main:
            run.chain.resume(run.position.step, describe(run), state)


def note(run: "ElasticRun") -> None:
    """Add a link after a step if one is due."""
    if run.chain is None or not takes_part(run):
        return
    if run.sharding is None:
        run.chain.note(run.position.step, list_state(run), time.monotonic())
    elif run.position.step in run.chain.plan.steps:
        add_together(run, run.chain)


def link(run: "ElasticRun") -> None:
    """Add a link here, unless only certain steps were asked for."""
    if run.chain is None or not takes_part(run) or run.chain.plan.steps:
        return
    if run.sharding is None:
        run.chain.add(run.position.step, list_state(run))
    else:
        add_together(run, run.chain)


def takes_part(run: "ElasticRun") -> bool:
    """Whether this process has a part in a link."""
    return run.is_main or run.sharding is not None


def add_together(run: "ElasticRun", chain: StateChain) -> None:
    """Add a link of a sharded state, of which every process gives its rows."""
    state = digest_state(list_state(run))
    if run.is_main:
        chain.append({"step": run.position.step, "state": state})


def list_state(run: "ElasticRun") -> Named:
    """The tensors that a link is over; between turns buffers are those that all processes agreed on."""
    return name_tensors(run.models, run.optimizers)


def describe(run: "ElasticRun") -> dict[str, Any]:
    """The head of a chain: what is run, and on what."""
    return {
        "facts": asdict(run.facts),
        "data": find_fingerprint(run.loader.dataset),
        "environment": describe_environment(),
    }
