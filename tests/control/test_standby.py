"""Two real servers on one real PostgreSQL: the second refuses, or stands by and takes over; jobs run once."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from benchmarks.takeover import JOB, SCRIPT, Platform, run_platform, take_over, wait_for_jobs, write_project

from springtide.control.storage.state_dir import StateDir, read_address
from springtide.core.job_states import JobState

HOUR_S = 3600


@pytest.fixture
def platform(database: str, tmp_path: Path) -> Iterator[Platform]:
    with run_platform(tmp_path / "platform", database) as found:
        yield found


def test_without_standby_a_second_server_refuses(platform: Platform, tmp_path: Path) -> None:
    active = platform.start("--engine", "fake")
    other = Platform(tmp_path / "other" / "home", platform.database)
    other.home.mkdir(parents=True)
    with pytest.raises(SystemExit, match=f"the server at {active.url}, last heard . s ago, serves this database; stop"):
        other.start("--engine", "fake")
    assert active.is_ready()


def test_without_a_shared_database_standing_by_is_refused(tmp_path: Path) -> None:
    alone = Platform(tmp_path / "home", f"sqlite:///{tmp_path}/x.db")
    alone.home.mkdir()
    with pytest.raises(SystemExit, match="--standby needs a database that two servers reach"):
        alone.start("--standby")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_standby_takes_over_and_no_job_is_lost_or_run_twice(
    platform: Platform, tmp_path: Path, how: signal.Signals
) -> None:
    project = write_project(tmp_path / "project")
    active, standby = platform.start(), platform.start("--standby")
    assert httpx.get(f"{standby.url}/healthz").json()["status"] == "ok"
    told = httpx.get(f"{standby.url}/readyz")
    assert (told.status_code, told.json()["status"]) == (503, "standby")
    with platform.connect() as client:
        jobs = [client.submit(project / "job.json", wait=False, key=f"{how.name}-{k}") for k in range(4)]
        take_over(platform, active, standby, how)
        again = client.submit(project / "job.json", wait=False, key=f"{how.name}-3")
        assert again.id == jobs[3].id and client.url == standby.url
    assert {job.state for job in wait_for_jobs(platform, jobs)} == {JobState.SUCCEEDED}
    runs = [platform.count_runs(job.id) for job in jobs]
    assert runs == [1, 1, 1, 1], platform.tell_events()
    if how is signal.SIGSTOP:  # it woke up, saw that another has taken over, and left the other's address there
        assert active.process.returncode == 1
        assert "another server has taken over the database" in platform.log.read_text()
    assert (read_address(StateDir(platform.home)) or {})["url"] == standby.url


ELSEWHERE = f"""import time
from springtide.executors import boot_clock
here_s = time.time
time.time = lambda: here_s() + {HOUR_S}
boot_clock.find_boot = lambda: "another machine"
"""


def test_a_standby_whose_wall_clock_is_an_hour_ahead_moves_no_deadline(platform: Platform, tmp_path: Path) -> None:
    """The time of the platform goes on by the database's clock, and events are as old as their own machine says."""
    project = write_project(tmp_path / "project")
    (project / "train.py").write_text(SCRIPT.replace("sleep(1)", "sleep(8)"))
    (project / "job.json").write_text(json.dumps({**JOB, "duration": "20s", "deadline": "30m"}))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "sitecustomize.py").write_text(ELSEWHERE)
    path = os.pathsep.join([str(elsewhere), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    active = platform.start()
    standby = platform.start("--standby", enter=("env", f"PYTHONPATH={path}"))
    began_s = time.time()
    with platform.connect() as client:
        job = client.submit(project / "job.json", wait=False)
        take_over(platform, active, standby, signal.SIGKILL)
        (ended,) = wait_for_jobs(platform, [job])
        told = client.ask("GET", "/api/v1/events")["events"]
    assert ended.state is JobState.SUCCEEDED and not [one for one in told if one["kind"] in ("missed", "at_risk")], told
    assert all(began_s - 60 < one["at_s"] < time.time() + 60 for one in told), platform.tell_events()
    finished = next(one for one in told if one["job"] == job.id and one["kind"] == "succeeded")
    assert finished["at_s"] > began_s + 8, "it is not as old as the two clocks are apart"
