"""The API against its own description: whatever is sent, no answer is a server error."""

from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from tests.control.http_servers import connect, run_server

from springtide.control.server import Server

BOUNDS = settings(max_examples=12, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


def test_nothing_that_is_sent_breaks_the_server(tmp_path: Path) -> None:
    with run_server(tmp_path) as server:
        with connect(server) as client:
            document = client.ask("GET", "/openapi.json")
        del document["paths"]["/api/v1/stop"]
        for operation in schemathesis.openapi.from_dict(document).get_all_operations():
            attack(server, operation.ok())  # type: ignore[union-attr]
        with connect(server) as client:
            assert client.server().document["schema"] == 1


def attack(server: Server, operation: Any) -> None:
    """Send what hypothesis makes up for one operation."""
    token = server.settings.home.token.read_text().strip()

    @BOUNDS
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        response = case.call(base_url=server.url, headers={"Authorization": f"Bearer {token}"})
        assert response.status_code < 500, (case, response.text)

    send()
