"""The lanes of devices: as wide as the past, nothing where nobody held a device, neighbours told apart."""

import re
from collections.abc import Iterator

import httpx
import pytest
from tests.dashboard.scenes import Shown, play_storm, show

from springtide.client.board_replies import LaneInfo
from springtide.dashboard.drawings.axis import Axis
from springtide.dashboard.drawings.lane_view import build_lanes

BOARD = Axis(0.0, 100.0, 1000.0)  # a tenth of it is past


def make_lane(device: str, *held: tuple[float, float, str], node: str = "n0", kind: str = "a100") -> LaneInfo:
    spans = tuple((start_s, end_s, job, job) for start_s, end_s, job in held)
    return LaneInfo({}, device, node, kind, "ready", spans)


def test_a_lane_takes_the_whole_width_and_an_idle_stretch_has_no_bar() -> None:
    (group,) = build_lanes([make_lane("g0", (0.0, 40.0, "a"), (60.0, 100.0, "b"))], BOARD.past, {"b": "safe"})
    (lane,) = group.lanes
    assert [(bar.x, bar.x + bar.width, bar.title, bar.tone) for bar in lane.bars] == [
        (0.0, 40.0, "a", "done"),
        (60.0, 100.0, "b", "safe"),
    ]
    assert (group.held, group.has_names, group.away_x) == (1, True, None)


def test_jobs_that_touch_have_different_shades_and_a_job_has_one() -> None:
    lanes = [
        make_lane("g0", (0.0, 40.0, "a"), (40.0, 100.0, "b")),
        make_lane("g1", (0.0, 50.0, "c"), (50.0, 100.0, "b")),
    ]
    (group,) = build_lanes(lanes, BOARD.past, {})
    shades = {
        bar.job: {one.shade for lane in group.lanes for one in lane.bars if one.job == bar.job}
        for lane in group.lanes
        for bar in lane.bars
    }
    assert all(len(some) == 1 for some in shades.values())
    a, b, c = (min(shades[name]) for name in "abc")
    assert len({a, b, c}) == 3


def test_nodes_of_one_type_stand_together() -> None:
    lanes = [make_lane(f"g{k}", node=f"n{k}", kind=kind) for k, kind in enumerate(("a100", "l4", "a100"))]
    assert [(group.device_type, group.node) for group in build_lanes(lanes, BOARD.past, {})] == [
        ("a100", "n0"),
        ("a100", "n2"),
        ("l4", "n1"),
    ]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with show(play_storm(tmp_path_factory.mktemp("storm"))) as shown:
        yield shown


def test_the_drawn_lanes_reach_now_at_the_right_edge_and_name_their_jobs(shown: Shown) -> None:
    with httpx.Client(base_url=shown.url, headers={"accept": "text/html", "origin": shown.url}, timeout=60) as client:
        client.post("/signin", data={"token": shown.token, "next": "/"})
        lanes = client.get("/").text.partition('<section class="lanes"')[2]
    bars = re.findall(r'<rect class="bar past (\w+) shade-\d" x="([\d.]+)%" y="[\d.]+" width="([\d.]+)%"', lanes)
    assert max(float(x) + float(width) for _, x, width in bars) == pytest.approx(100, abs=0.1)
    assert {"done", "safe", "risk"} <= {tone for tone, _, _ in bars}
    assert '<div class="holder">whisper-small</div>' in lanes  # whole: the style sheet cuts it where it must
    assert re.search(r'<rect class="away" x="9\d', lanes)  # drained ten minutes ago, and not all of the past
