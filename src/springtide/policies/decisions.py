"""The one entry of both clocks: what a policy decides, with devices named, and checked before anybody acts on it."""

from dataclasses import replace

from springtide.core.checks import check_decision
from springtide.core.decisions import Decision, Snapshot
from springtide.placement.buddy import place
from springtide.placement.type_pools import place_mixes
from springtide.policies.registry import Policy, PolicyEntry, enter


def decide(policy: Policy | PolicyEntry, now_s: float, snapshot: Snapshot) -> Decision:
    """What a policy decides, with devices named; raises PolicyError where it cannot be carried out."""
    entry = enter("", policy)
    decision = place_shares(now_s, snapshot, entry.load()(now_s, snapshot))
    check_decision(now_s, snapshot, decision)
    return decision


def place_shares(now_s: float, snapshot: Snapshot, decision: Decision) -> Decision:
    """A decision with its devices; a policy that had to place it to know that it holds has named them already."""
    if decision.allocations or not (decision.shares or decision.mixes):
        return decision
    if decision.mixes:
        return replace(decision, allocations=place_mixes(now_s, snapshot, decision))
    return replace(decision, allocations=place(now_s, snapshot, decision))
