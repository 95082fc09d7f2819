"""One profile for all properties, and the order of files.

No deadline, because how long an example takes is the machine's business.
"""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

#: Files that take half a minute or more, the longest first (`pytest --durations=60`): begun last, one of them would run
#: alone at the end while the other workers have nothing left to do.
LONG_FILES = (
    "tests/control/test_chaos.py",
    "tests/training/test_ablations.py",
    "tests/control/test_live.py",
    "tests/examples/test_equality.py",
    "tests/training/probes/test_script_probes.py",
    "tests/dashboard/test_accessible.py",
    "tests/control/test_live_types.py",
    "tests/training/determinism/test_operators.py",
    "tests/throughput/test_probing.py",
    "tests/verification/stock/test_stock_verify.py",
    "tests/control/scheduling/test_submit_protocol.py",
    "tests/executors/hosts/test_hosts.py",
    "tests/verification/test_receipt_check.py",
    "tests/executors/local/test_executor.py",
    "tests/executors/local/test_faults.py",
    "tests/executors/local/test_hostile_workers.py",
    "tests/executors/hosts/test_host_life.py",
    "tests/dashboard/test_browser.py",
    "tests/dashboard/test_studies.py",
    "tests/control/test_live_daily.py",
    "tests/control/api/test_fuzz.py",
    "tests/control/storage/test_job_snapshot.py",
    "tests/training/test_standard_input.py",
)
ROOT = Path(__file__).parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take long first; all else stays in its order."""
    places = {ROOT / name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once at the end what to install where tests were left out for want of it."""
    reasons = {str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []) if is_told(report)}
    for reason in sorted(one.removeprefix("Skipped: ") for one in reasons if " need" in one):
        terminalreporter.write_line(f"left out: {reason}")


def is_told(report: pytest.TestReport) -> bool:
    """Whether a report of a skipped test has its reason."""
    return isinstance(report.longrepr, tuple)
