"""The contract of executors, kept by each of them: one suite, run on a virtual clock and on real processes."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest
from tests.executors.conformance.checks import CHECKS, Check, run_check
from tests.executors.conformance.trials import WORKERS, Behaviour, Harness, make_spec

from springtide.executors.fake import FakeExecutor, FakeJob
from springtide.executors.local.executor import LocalExecutor
from springtide.executors.protocol import JobSpec


@dataclass
class FakeHarness:
    """The fake executor, whose clock moves when it is waited for."""

    folder: Path
    devices: tuple[str, ...] = ("fake:0", "fake:1")
    executor: FakeExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.executor = FakeExecutor(devices=self.devices)

    def make_spec(self, job: str, behaviour: Behaviour) -> JobSpec:
        self.executor.behaviours[job] = FakeJob(
            total_steps=behaviour.steps,
            speeds={1: 1 / behaviour.step_s, 2: 2 / behaviour.step_s},
            logical_workers=WORKERS,
            startup_s=0.5,
            crashes_at=behaviour.crashes_at or None,
        )
        return make_spec(self.folder / job, behaviour)

    def wait(self, after: int) -> None:
        self.executor.advance(0.1)

    def kill(self, job: str) -> None:
        self.executor.kill(job)


@dataclass
class LocalHarness:
    """The executor of this machine with two CPU slots."""

    executor: LocalExecutor
    folder: Path
    devices: tuple[str, ...] = ("cpu:0", "cpu:1")

    def make_spec(self, job: str, behaviour: Behaviour) -> JobSpec:
        return replace(make_spec(self.folder / job, behaviour), threads=1)

    def wait(self, after: int) -> None:
        self.executor.wait(after, 0.3)

    def kill(self, job: str) -> None:
        (found,) = [one for one in self.executor.running() if one.job == job]
        os.kill(found.pids[-1], signal.SIGKILL)


@pytest.fixture(scope="module")
def harnesses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Harness]]:
    """One harness of each executor for all checks."""
    folder = tmp_path_factory.mktemp("conformance")
    executor = LocalExecutor(folder / "state", cpu_slots="2")
    yield {"fake": FakeHarness(folder / "fake"), "local": LocalHarness(executor, folder / "local")}
    executor.shutdown()


numbers = count()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
@pytest.mark.parametrize("name", ["fake", "local"])
def test_the_contract_is_kept(harnesses: dict[str, Harness], name: str, check: Check) -> None:
    run_check(harnesses[name], check, f"job-{next(numbers)}")
