"""Who gets how many devices: pure functions (now, Snapshot) -> Decision.

`registry` names them all; `decide` runs one, places what it says and checks it whole. Simulator and reconciler call
nothing else.
"""

from springtide.policies.deciding import decide
from springtide.policies.registry import POLICIES, Policy, PolicyEntry, find_policy

__all__ = ["POLICIES", "Policy", "PolicyEntry", "decide", "find_policy"]
