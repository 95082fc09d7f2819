"""How much memory a job may use: what it asks for, what the server gives every job, and who may not have more."""

from pathlib import Path

import pytest
from tests.control.hand_clock import POLICY, HandClockServer

from springtide.control.executor_factory import check_memory_limit
from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.scheduling.speeds import make_key
from springtide.core.job_file import parse_job_text
from springtide.errors import InputError, JobError
from springtide.executors.local.processes import cgroups

RUN = "python train.py"


def find_memory(server: HandClockServer) -> int | None:
    (run,) = server.executor.runs.values()
    return run.order.spec.memory_bytes


def open_server(folder: Path, most_memory: str | None) -> HandClockServer:
    return HandClockServer(folder, options=ServerOptions(policy=POLICY, most_memory=most_memory))


@pytest.mark.parametrize(
    ("most", "asked", "given"),
    [(None, None, None), (None, "2 GiB", 2 << 30), ("1 GiB", None, 1 << 30), ("4 GiB", "2 GiB", 2 << 30)],
)
def test_the_executor_is_told_what_a_job_may_use(
    tmp_path: Path, most: str | None, asked: str | None, given: int | None
) -> None:
    server = open_server(tmp_path, most)
    server.submit(run=RUN, memory=asked)
    assert find_memory(server) == given


def test_more_than_the_server_gives_is_refused(tmp_path: Path) -> None:
    server = open_server(tmp_path, "1 GiB")
    with pytest.raises(JobError, match="memory 2 GiB is more than the 1 GiB that this server gives a job"):
        server.submit(run=RUN, memory="2 GiB")


def test_a_job_with_another_memory_is_as_fast() -> None:
    plain, held = (parse_job_text(text, "job.yaml") for text in ("{run: x}", "{run: x, memory: 2 GB}"))
    assert make_key(plain, "code", "2.13.0") == make_key(held, "code", "2.13.0")


def test_a_server_does_not_start_with_a_limit_that_nothing_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "find_own_group", lambda: None)
    with pytest.raises(InputError, match="most_memory is 1 GiB, and jobs cannot be held to it here"):
        check_memory_limit("1 GiB")
