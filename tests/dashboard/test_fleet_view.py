"""The fleet: who lends what to whom, and nodes that take no work."""

import re
from collections.abc import Iterator

import httpx
import pytest
from tests.dashboard.scenes import Shown, play_storm, show

HTML = {"accept": "text/html"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with show(play_storm(tmp_path_factory.mktemp("storm"))) as shown:
        yield shown


def read(shown: Shown, place: str) -> str:
    """A page as the owner sees it."""
    with httpx.Client(base_url=shown.url, headers=HTML | {"origin": shown.url}, timeout=60) as client:
        client.post("/signin", data={"token": shown.token, "next": "/"})
        return client.get(place).text


def test_a_node_that_takes_no_work_says_since_when(shown: Shown) -> None:
    assert re.search(r"drained since <time", read(shown, "/fleet"))


def test_a_node_names_whom_it_lends_to(shown: Shown) -> None:
    holders = [one for one in shown.scene.store.active_jobs() if one.devices and not one.promised]
    page = read(shown, "/fleet")
    assert len(re.findall(r"<b>lent \d+</b> to", page)) == bool(holders)
    assert f"{sum(len(one.devices) for one in holders)} devices lent now" in page


def test_jobs_on_devices_are_known_however_many_there_are(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(shown, "/fleet")
    monkeypatch.setattr("springtide.dashboard.screens.JOBS_AT_ONCE", 1)
    assert re.findall(r'class="cell [^"]+"', read(shown, "/fleet")) == re.findall(r'class="cell [^"]+"', whole)
