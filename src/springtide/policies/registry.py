"""Every policy by name, with the facts that others ask of it; policies from outside the package join by entry point.

A new policy costs one file, one test file and one line in `OURS`. Outside the package it costs an entry point in
the group `springtide.policies`, or nothing: wherever a name is taken, `module:function` is taken too.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TypeAlias

from springtide.core.decisions import Decision, Snapshot
from springtide.errors import PolicyError

Policy: TypeAlias = Callable[[float, Snapshot], Decision]
GROUP = "springtide.policies"


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy: its name, where it is, and what it can do.

    `target` is `module:function`, imported on first use because some need a solver; `function` is given instead where
    the policy is at hand. `warm_up`, in the same module, compiles what is compiled on first use.
    """

    name: str
    target: str = ""
    typed: bool = False  # knows device types; one that does not decides for the devices of each type alone
    promises: bool = False  # an admission with a deadline may be a promise
    borrows: bool = False  # gives back devices that their owner claims
    warm_up: str = ""
    function: Policy | None = None

    def load(self) -> Policy:
        """The policy itself."""
        return self.function if self.function is not None else import_target(self.target)

    def compile(self) -> None:
        """Compile what is compiled on first use."""
        if self.warm_up:
            getattr(import_module(self.target.partition(":")[0]), self.warm_up)()


def _entry(
    name: str, module: str, typed: bool = False, promises: bool = False, borrows: bool = False, compiled: bool = False
) -> PolicyEntry:
    """A policy of ours: the function is named as the policy is."""
    target = f"springtide.policies.{module}:{name.replace('-', '_')}"
    return PolicyEntry(name, target, typed, promises, borrows, "warm_up" if compiled else "")


OURS = (
    _entry("elasticflow", "elasticflow", promises=True, compiled=True),
    _entry("springtide", "springtide", typed=True, promises=True, compiled=True),
    _entry("springtide-flexible", "springtide_flexible", compiled=True),
    _entry("fifo", "fifo", typed=True),
    _entry("fifo-backfill", "fifo_backfill", typed=True),
    _entry("srtf", "srtf", typed=True),
    _entry("yarn-cs", "yarn_cs", typed=True),
    _entry("easyscale-homo", "easyscale.easyscale", typed=True, borrows=True),
    _entry("easyscale-heter", "easyscale.easyscale", typed=True, borrows=True),
    _entry("edf", "edf"),
    _entry("edf-admission", "edf_admission", promises=True),
    _entry("edf-elastic", "edf_elastic", compiled=True),
    _entry("gandiva", "research.gandiva"),
    _entry("tiresias", "research.tiresias"),
    _entry("themis", "research.themis"),
    _entry("chronus", "chronus.chronus", promises=True),
    _entry("pollux", "research.pollux"),
    _entry("sia", "research.sia", typed=True),
    _entry("gavel", "research.gavel", typed=True),
    _entry("shockwave", "research.shockwave"),
    _entry("rubick", "research.rubick"),
)
POLICIES: Mapping[str, PolicyEntry] = {entry.name: entry for entry in OURS}


def find_policy(policy: "str | Policy | PolicyEntry") -> PolicyEntry:
    """The entry of a policy: by name one of ours or of an installed package, by `module:function`, or of a function."""
    if not isinstance(policy, str):
        return enter("", policy)
    if policy in POLICIES:
        return POLICIES[policy]
    if ":" in policy:
        return enter(policy, import_target(policy))
    found = list_installed()
    if policy not in found:
        known = ", ".join([*POLICIES, *found])
        raise PolicyError(f"unknown policy {policy!r}; there are: {known}, or module:function")
    return enter(policy, found[policy].load())


@cache
def list_installed() -> dict[str, EntryPoint]:
    """Policies of installed packages, by the name of their entry point."""
    return {point.name: point for point in entry_points(group=GROUP)}


def import_target(target: str) -> Policy:
    """What `module:function` names; a module in the working directory is found, too."""
    module, _, function = target.partition(":")
    if module.partition(".")[0] != __package__.partition(".")[0] and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Policy = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise PolicyError(f"policy {target!r} cannot be imported: {error}; it is module:function") from None
    return found


def enter(name: str, found: Policy | PolicyEntry) -> PolicyEntry:
    """The entry of a policy from outside: its own, or of a function of which nothing more is known."""
    if isinstance(found, PolicyEntry):
        return found
    if not callable(found):
        raise PolicyError(f"policy {name or found!r} must be a function (now_s, snapshot), not {type(found).__name__}")
    target = f"{getattr(found, '__module__', '')}:{getattr(found, '__name__', '')}"
    ours = next((entry for entry in OURS if entry.target == target), None)
    return ours if ours is not None else PolicyEntry(name or target, function=found)
