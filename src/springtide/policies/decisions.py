"""The one entry of both clocks: what a policy decides, with devices named, and checked before anybody acts on it.

On clusters of several device types a policy that knows none decides for the devices of each type alone.
"""

from dataclasses import replace
from functools import partial

from springtide.core.checks import check_decision
from springtide.core.decisions import Decision, Snapshot
from springtide.placement.buddy import place
from springtide.placement.type_pools import place_mixes
from springtide.policies.pools.partition import decide_apart, is_partitioned
from springtide.policies.registry import Policy, PolicyEntry, enter


def decide(policy: Policy | PolicyEntry, now_s: float, snapshot: Snapshot) -> Decision:
    """What a policy decides, with devices named; raises PolicyError where it cannot be carried out."""
    entry = enter("", policy)
    chosen = partial(decide_whole, entry.load())
    if not entry.typed and is_partitioned(snapshot):
        decision = decide_apart(chosen, now_s, snapshot)
    else:
        decision = chosen(now_s, snapshot)
    check_decision(now_s, snapshot, decision)
    return decision


def decide_whole(policy: Policy, now_s: float, snapshot: Snapshot) -> Decision:
    """What a policy decides for all devices it is shown; it may have named them to know that its plans hold."""
    decision = policy(now_s, snapshot)
    if decision.allocations or not (decision.shares or decision.mixes):
        return decision
    if decision.mixes:
        return replace(decision, allocations=place_mixes(now_s, snapshot, decision))
    return replace(decision, allocations=place(now_s, snapshot, decision))
