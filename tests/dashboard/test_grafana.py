"""The Grafana dashboard asks only for metrics that there are."""

import json
import re
from pathlib import Path

from tests.control.hand_clock import HandClockServer

from springtide.control.api.platform.prometheus import write_metrics

BOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "springtide.json"


def test_every_metric_of_a_panel_exists(tmp_path: Path) -> None:
    server = HandClockServer(tmp_path)
    server.submit(name="one", deadline="10m")
    server.pass_s(60)
    text = write_metrics(server.store, server.reconciler.inventory, server.source.wall_s())
    there = set(re.findall(r"^([a-z_]+)", text, re.MULTILINE)) | set(re.findall(r"# TYPE (\S+)", text))
    panels = json.loads(BOARD.read_text())["panels"]
    asked = {
        name for panel in panels for one in panel["targets"] for name in re.findall(r"springtide_\w+", one["expr"])
    }
    assert len(asked) > 10
    assert asked - there == set()
