"""What a figure may use while it is made: inputs, cached runs, fresh processes, and a way to tell how far it is.

A figure asks for runs and gets values; where they come from (the cache, this process, others) is decided here.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from experiments.caches import Cache
from experiments.codes import digest_code, reach_checkout
from experiments.simulations import Outcome, Plan, Tell, run_plans
from experiments.sources import Sources
from springtide.errors import TrainingError


@dataclass(frozen=True, slots=True)
class FigureContext:
    """The means of one command: sources, cache, how many processes, and whether everything is to be small."""

    sources: Sources
    cache: Cache
    quick: bool = False
    jobs: int = 1
    tell: Tell = lambda what, done: None

    def simulate(self, plans: Sequence[Plan]) -> list[Outcome]:
        """These runs, in order."""
        return run_plans(plans, self.cache, self.jobs, self.tell)

    def remember(self, module: str, parts: object, compute: Callable[[], Any]) -> Any:
        """What a module computes from these parts, as JSON gives it back; kept until its code changes."""
        return self.cache.remember([module, digest_code(module), parts], compute)

    def measure(self, module: str, order: dict[str, Any], timeout_s: float = 1200.0) -> Any:
        """What a module of ours, run as a fresh process with an order on its input, answers on its output."""
        self.tell(f"measuring in a process of its own: {module.rsplit('.', 1)[-1]}", 0.0)
        return self.remember(module, order, lambda: run_module(module, order, timeout_s))


def run_module(module: str, order: dict[str, Any], timeout_s: float) -> Any:
    """The JSON answer of `python -m MODULE` to a JSON order."""
    command = [sys.executable, "-m", module]
    try:
        done = subprocess.run(
            command, input=json.dumps(order), capture_output=True, text=True, timeout=timeout_s, env=reach_checkout()
        )
    except subprocess.TimeoutExpired:
        raise TrainingError(f"{module} did not answer within {timeout_s:g} s and was stopped") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise TrainingError(f"{module} ended with code {done.returncode}: {lines[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def has_module(name: str) -> bool:
    """Whether a library is installed."""
    return find_spec(name) is not None
