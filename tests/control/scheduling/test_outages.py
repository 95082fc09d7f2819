"""What an executor cannot do while jobs go on, as to find hosts without Ray's head, is told wherever one looks."""

from pathlib import Path

import httpx
import pytest
from tests.control.http_servers import SLOW, connect, run_server, write_project

from springtide.cli.app import main
from springtide.control.scheduling import reconciler
from springtide.control.server import Server
from springtide.executors.fake import RealTimeFake

WHY = "jobs go on, but no other host can be found or started: Ray at 10.0.0.5:6379 cannot be reached"


def wait_for_outage(server: Server, expected: str) -> None:
    """Let steps pass until the executor was asked."""
    assert isinstance(server.engine.executor, RealTimeFake)
    server.engine.executor.lacks = expected
    while server.reconciler.health.outage != expected:
        server.reconciler.call(lambda: None).result(timeout=30)


def say(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit):
        main(list(words))
    shown = capsys.readouterr()
    return " ".join((shown.out + shown.err).split())


def test_an_outage_is_told_with_its_age_and_its_end_and_nothing_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reconciler, "AUDIT_S", 0.0)
    with run_server(tmp_path, job=SLOW) as server, connect(server) as client:
        monkeypatch.setenv("SPRINGTIDE_HOME", str(server.settings.state_dir.root))
        monkeypatch.setenv("SPRINGTIDE_URL", server.url)
        monkeypatch.setenv("COLUMNS", "400")
        job = client.submit(write_project(tmp_path / "project"))
        assert client.server().document["outage"] is None
        wait_for_outage(server, WHY)
        ready = httpx.get(f"{server.url}/readyz")
        assert ready.status_code == 200 and ready.json()["checks"]["outage"]["sentence"] == WHY
        assert any(WHY in fact for fact in client.why(job).facts)
        for words in (["nodes"], ["ps"], ["status", job.name], ["doctor", "-o", "json"]):
            assert WHY in say(capsys, *words), words
        assert "springtide doctor --engine ray" in say(capsys, "doctor")
        lines = client.http.get("/metrics").text.splitlines()
        (age_s,) = [float(line.split()[1]) for line in lines if line.startswith("springtide_executor_outage_seconds ")]
        assert age_s > 0
        wait_for_outage(server, "")
        assert client.server().document["outage"] is None
        assert httpx.get(f"{server.url}/readyz").json()["checks"]["outage"]["age_s"] == 0.0
        told = [event for event in server.store.events(None, 0, 1000) if event.kind.startswith("outage")]
        assert [event.kind for event in told] == ["outage", "outage_over"] and told[0].sentence == WHY
        client.cancel(job.id)
