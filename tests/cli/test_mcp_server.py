"""An agent at work through the SDK's own client: a plan within limits, an offer taken, weights fetched."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.control.http_servers import OPTIONS, connect, run_server, write_project

from springtide.cli.mcp_server import build_server

mcp = pytest.importorskip("mcp", reason="needs the extra `mcp`: make test-mcp")


async def drive(server: Any, work: "Callable[[Callable[..., Any]], Any]") -> None:
    """Connect the SDK's client to the server, and do some work with its tools."""
    async with mcp.Client(server) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == {"plan", "submit", "accept", "cancel", "jobs", "why", "wait", "logs", "fetch"}

        async def call(name: str, **words: Any) -> dict[str, Any]:
            result = await client.call_tool(name, words)
            assert not result.is_error, result
            return dict(result.structured_content or json.loads(result.content[0].text))

        await work(call)


def test_an_agent_plans_accepts_a_counter_offer_and_fetches_the_weights(tmp_path: Path) -> None:
    from tests.client.test_fetching import save

    with run_server(tmp_path, replace(OPTIONS, price_per_device_hour=2.0)) as server:
        job_file = str(write_project(tmp_path / "work", name="agents"))

        async def work(call: Callable[..., Any]) -> None:
            told = await call("plan", job_file=job_file, deadline="10m", budget_usd=5)
            assert told.get("answer") == "admitted" and told["deadline"], told
            assert 0 < told["cost_usd"] < 5
            asked = await call("submit", job_file=job_file, deadline="1s", budget_usd=5)
            assert asked["answer"] == "declined" and asked["open_offers"], asked
            assert "declined" in (await call("why", job="agents"))["sentence"]
            taken = await call("accept", job="agents", offer=asked["open_offers"][0]["id"])
            assert taken["answer"] == "admitted", taken
            ended = await call("wait", job="agents", seconds=60)
            assert ended["state"] == "succeeded" and ended["met"]
            with connect(server) as client:
                save(server, client.job("agents"), 100)
            fetched = await call("fetch", job="agents", out=str(tmp_path / "out"))
            assert Path(fetched["weights"]).is_file()
            assert (await call("jobs", all=True))["jobs"][0]["name"] == "agents"

        asyncio.run(drive(build_server(lambda: connect(server)), work))


def test_what_an_agent_gets_wrong_is_told_in_a_sentence(tmp_path: Path) -> None:
    with run_server(tmp_path) as server:

        async def work(call: Callable[..., Any]) -> None:
            assert "there is no job 'nothing'" in (await call("why", job="nothing"))["error"]
            told = await call("plan", job_file=str(tmp_path / "no.yaml"))
            assert told["reason"] in ("job", "input") and "no.yaml" in told["error"]

        asyncio.run(drive(build_server(lambda: connect(server)), work))
