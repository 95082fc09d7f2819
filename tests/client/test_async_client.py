"""The awaited twin: the same values, several jobs at once, a wait that can be cancelled."""

import asyncio
import inspect
from pathlib import Path

import pytest
from tests.control.http_servers import SLOW, run_server, write_project

from springtide.client.async_client import AsyncClient
from springtide.client.client import Client
from springtide.client.log_streams import LogChoice, LogKind
from springtide.executors.local.jobs.worker_logs import JobLogs

LEFT_OUT = {"ask", "send", "close", "upload", "pack", "make_link", "stop", "drain", "undrain"}
FOR_ADMINS = {"users", "put_user", "drop_user", "projects", "put_project", "drop_project"}


def test_jobs_are_followed_side_by_side(tmp_path: Path) -> None:
    async def work(url: str, home: Path) -> None:
        async with AsyncClient(url, home=home) as client:
            jobs = [await client.submit(write_project(tmp_path / name, deadline="10m", name=name)) for name in "ab"]
            ended = await asyncio.gather(*(client.wait(job) for job in jobs))
            assert all(job.met for job in ended)
            logs = JobLogs(home / "jobs" / jobs[0].id / "logs")
            logs.write(0, b"one\ntwo\n", 1.0)
            logs.close()
            lines = [line.text async for line in client.read_log(jobs[0], LogChoice(only=LogKind.OUTPUT))]
            assert lines == ["one", "two"]
            assert "".join([piece async for piece in client.logs(jobs[0])]) == "one\ntwo\n"
            assert (await client.why(jobs[0])).name == "a"
            assert [job.name async for job in client.each_job()] == ["b", "a"]

    with run_server(tmp_path) as server:
        asyncio.run(work(server.url, server.settings.state_dir.root))


def test_a_wait_can_be_given_up(tmp_path: Path) -> None:
    async def work(url: str, home: Path) -> None:
        async with AsyncClient(url, home=home) as client:
            job = await client.submit(write_project(tmp_path / "a"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.wait(job), 0.2)
            assert (await client.cancel(job)).state == "cancelled"

    with run_server(tmp_path, job=SLOW) as server:
        asyncio.run(work(server.url, server.settings.state_dir.root))


def test_what_users_call_is_there_and_says_what_it_does() -> None:
    public = {name for name, value in vars(Client).items() if not name.startswith("_") and inspect.isfunction(value)}
    assert public - LEFT_OUT - FOR_ADMINS <= set(dir(AsyncClient))
    assert AsyncClient.__dict__["submit"].__doc__ == Client.submit.__doc__
