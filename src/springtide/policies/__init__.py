"""Who gets how many devices: pure functions (now, Snapshot) -> Decision.

`POLICIES` names them all, `decide` runs one and then placement. A new policy costs one file, one test file and one
line in `POLICIES`; each module holds a function of that name's policy.
"""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import TypeAlias

from springtide.core.decisions import Decision, Snapshot
from springtide.errors import PolicyError
from springtide.placement.buddy import place
from springtide.placement.type_pools import place_mixes

Policy: TypeAlias = Callable[[float, Snapshot], Decision]

# name -> (module, function); imported on first use, because some need a solver
POLICIES: dict[str, tuple[str, str]] = {
    "elasticflow": ("springtide.policies.elasticflow", "elasticflow"),
    "springtide": ("springtide.policies.springtide", "springtide"),
    "springtide-flexible": ("springtide.policies.springtide_flexible", "springtide_flexible"),
    "fifo": ("springtide.policies.fifo", "fifo"),
    "fifo-backfill": ("springtide.policies.fifo_backfill", "fifo_backfill"),
    "srtf": ("springtide.policies.srtf", "srtf"),
    "yarn-cs": ("springtide.policies.yarn_cs", "yarn_cs"),
    "easyscale-homo": ("springtide.policies.easyscale.easyscale", "easyscale_homo"),
    "easyscale-heter": ("springtide.policies.easyscale.easyscale", "easyscale_heter"),
    "edf": ("springtide.policies.edf", "edf"),
    "edf-admission": ("springtide.policies.edf_admission", "edf_admission"),
    "edf-elastic": ("springtide.policies.edf_elastic", "edf_elastic"),
    "gandiva": ("springtide.policies.gandiva", "gandiva"),
    "tiresias": ("springtide.policies.tiresias", "tiresias"),
    "themis": ("springtide.policies.themis", "themis"),
    "chronus": ("springtide.policies.chronus.chronus", "chronus"),
    "pollux": ("springtide.policies.pollux", "pollux"),
}
# policies that know of device types; for the others every device of a mixed cluster counts as one of the slowest type
TYPE_AWARE = frozenset({"springtide", "fifo", "fifo-backfill", "srtf", "yarn-cs", "easyscale-homo", "easyscale-heter"})


def find_policy(name: str) -> Policy:
    """The policy of this name."""
    if name not in POLICIES:
        raise PolicyError(f"unknown policy {name!r}; there are: {', '.join(POLICIES)}")
    module, function = POLICIES[name]
    policy: Policy = getattr(import_module(module), function)
    return policy


def decide(policy: Policy, now_s: float, snapshot: Snapshot) -> Decision:
    """What a policy decides, with devices named: the one entry point of the simulator and the live platform.

    A policy that had to place its decision to know that it holds has named them already.
    """
    decision = policy(now_s, snapshot)
    if decision.allocations or not (decision.shares or decision.mixes):
        return decision
    if decision.mixes:
        return replace(decision, allocations=place_mixes(now_s, snapshot, decision))
    return replace(decision, allocations=place(now_s, snapshot, decision))
