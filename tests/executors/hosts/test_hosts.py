"""Several hosts over the loopback: the contract of executors, and what becomes of hosts that come and go."""

from collections.abc import Iterator
from itertools import count

import pytest
from tests.executors.conformance import checks
from tests.executors.conformance.checks import Check, run_check
from tests.executors.hosts.loopback_cluster import HostsHarness, LoopbackCluster

numbers = count()


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostsHarness]:
    """Two hosts for all checks."""
    cluster = LoopbackCluster(tmp_path_factory.mktemp("hosts"))
    cluster.start_host("h1")
    cluster.start_host("h2")
    cluster.wait_for_hosts("h1", "h2")
    yield HostsHarness(cluster)
    cluster.close()


#: The rest takes a minute more: make test-cluster.
FIRST = (checks.check_a_job_runs_to_its_end, checks.check_a_job_grows_and_shrinks)
MARKED = [check if check in FIRST else pytest.param(check, marks=pytest.mark.slow) for check in checks.CHECKS]


@pytest.mark.parametrize("check", MARKED, ids=lambda check: str(check.__name__))
def test_hosts_keep_the_contract(harness: HostsHarness, check: Check) -> None:
    run_check(harness, check, f"job-{next(numbers)}")
