"""The one entry of both clocks: what a policy decides, with devices named, and checked before anybody acts on it.

On clusters of several device types a policy that knows none decides for the devices of each type alone.
"""

from dataclasses import replace
from functools import partial

from springtide.core.decisions import Decision, Snapshot
from springtide.core.world import check_decision
from springtide.placement.buddy import place
from springtide.placement.type_pools import place_mixes
from springtide.policies.common.reasons import complete_reasons
from springtide.policies.pools.partition import decide_apart, is_partitioned
from springtide.policies.registry import Policy, PolicyEntry, find_policy


def decide(policy: Policy | PolicyEntry, now_s: float, snapshot: Snapshot) -> Decision:
    """What a policy decides, with devices and reasons; raises PolicyError where it cannot be carried out."""
    entry = policy if isinstance(policy, PolicyEntry) else find_policy(policy)
    if entry.typed or not is_partitioned(snapshot):
        return decide_whole(entry, now_s, snapshot)
    return complete(entry, now_s, snapshot, decide_apart(partial(decide_whole, entry), now_s, snapshot))


def decide_whole(entry: PolicyEntry, now_s: float, snapshot: Snapshot) -> Decision:
    """What a policy decides for all devices it is shown."""
    return complete(entry, now_s, snapshot, name_devices(now_s, snapshot, entry.load()(now_s, snapshot)))


def complete(entry: PolicyEntry, now_s: float, snapshot: Snapshot, decision: Decision) -> Decision:
    """A decision that can be carried out, with a reason for every change of devices."""
    check_decision(now_s, snapshot, decision)
    return complete_reasons(now_s, snapshot, decision, entry.promises) if decision.allocations else decision


def name_devices(now_s: float, snapshot: Snapshot, decision: Decision) -> Decision:
    """A decision with its devices; a policy that had to place it to know that its plans hold has named them already."""
    if decision.allocations or not (decision.shares or decision.mixes):
        return decision
    if decision.mixes:
        return replace(decision, allocations=place_mixes(now_s, snapshot, decision))
    return replace(decision, allocations=place(now_s, snapshot, decision))
