"""What the tools of agents answer, called as functions: the SDK is not needed for that."""

from pathlib import Path

from tests.control.http_servers import connect, run_server, write_project

from springtide.cli.mcp_server import list_tools


def test_an_agent_submits_a_sweep_with_other_keys_and_variables(tmp_path: Path) -> None:
    with run_server(tmp_path) as server:
        submit = {tool.__name__: tool for tool in list_tools(lambda: connect(server))}["submit"]
        sweep = {"grid": {"lr": [1, 2]}}
        path = str(write_project(tmp_path / "sweep", name="swept", run="python train.py {lr}", hold=True, sweep=sweep))
        told = submit(path, settings=["steps=7"], env=["SEED=3"])
        assert told["name"] == "swept" and [one["name"] for one in told["jobs"]] == ["swept-1", "swept-2"]
        alone = submit(str(write_project(tmp_path / "one", name="alone", hold=True)), env=["SEED=4"])
        with connect(server) as client:
            assert [one.spec["steps"] for one in client.array(told["array"]).jobs] == [7, 7]
            assert client.job(told["jobs"][0]["id"]).spec["env"] == {"SEED": "3"}
            assert client.job(alone["id"]).spec["env"] == {"SEED": "4"}
