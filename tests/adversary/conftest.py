"""The cases of all fuzzers, added up over the processes that ran them; too few of them over HTTP fail the run."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.adversary.nights import CASES, SEED

LEAST = int(os.environ.get("SPRINGTIDE_LEAST_CASES", "0"))
#: In the name of a fuzzer whose cases are sent to a server; others call a parser.
SENT = "over HTTP"


def list_cases(config: pytest.Config) -> Iterator[tuple[str, int, str]]:
    """What was sent, how often, and what became of it, of every fuzzer that passed."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    for one in reporter.stats.get("passed", ()) if reporter is not None else ():
        yield from (tuple(value) for name, value in one.user_properties if name == CASES)


def count_sent(config: pytest.Config) -> int:
    """How many cases were sent to a server."""
    return sum(number for what, number, _ in list_cases(config) if SENT in what)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was tried."""
    found = sorted(list_cases(config))
    for what, number, told in found:
        terminalreporter.write_line(f"{what}: {number} cases: {told}")
    if found:
        total = sum(number for _, number, _ in found)
        sent = count_sent(config)
        terminalreporter.write_line(f"{total} cases with seed {SEED}, {sent} of them {SENT}; asked for: {LEAST} {SENT}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that tried too little."""
    if not hasattr(session.config, "workerinput") and count_sent(session.config) < LEAST:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
