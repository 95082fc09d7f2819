"""The cases of all fuzzers, added up over the processes that ran them; too few of them fail the run."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.adversary.nights import CASES, SEED

LEAST = int(os.environ.get("SPRINGTIDE_LEAST_CASES", "0"))


def list_cases(config: pytest.Config) -> Iterator[tuple[str, int, str]]:
    """What was sent, how often, and what became of it, of every fuzzer that passed."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    for one in reporter.stats.get("passed", ()) if reporter is not None else ():
        yield from (tuple(value) for name, value in one.user_properties if name == CASES)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was tried."""
    found = sorted(list_cases(config))
    for what, number, told in found:
        terminalreporter.write_line(f"{what}: {number} cases: {told}")
    if found:
        total = sum(number for _, number, _ in found)
        terminalreporter.write_line(f"{total} cases with seed {SEED}, of which {LEAST} at least were asked for")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that tried too little."""
    if (
        not hasattr(session.config, "workerinput")
        and sum(number for _, number, _ in list_cases(session.config)) < LEAST
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
