"""Pictures of every page in both themes, for `make screenshots`.

The scenes are played on clocks moved by hand, so the pictures change only when the pages do. After the pages of an
afternoon: on a phone, on paper, a storm with a promise at risk, a thousand jobs, and an empty board. Some only:
`python -m tests.dashboard.screenshots FOLDER NAME...`. Those of the documentation, for `make images`:
`python -m tests.dashboard.screenshots --images docs/images`
"""

import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tests.control.hand_clock import HandClockServer
from tests.dashboard.browsers import open_browser
from tests.dashboard.scenes import Shown, play, play_crowd, play_storm, show, write_curves, write_receipt

from springtide.dashboard.studies.study_runner import WALL_S

if TYPE_CHECKING:
    from playwright.sync_api import Page

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PHONE = (390, 844)
#: What the documentation shows, as `docs/images/PAGE-THEME.png`.
IMAGES = (("board", "light"), ("board", "dark"), ("job", "light"), ("ask", "light"))


def list_places(shown: Shown) -> dict[str, str]:
    """Every page by the name of its picture."""
    ids = {record.name: record.id for record in shown.scene.store.list_jobs()}
    return {
        "board": "/",
        "job": f"/jobs/{ids['vit-large']}",
        "ended": f"/jobs/{ids['resnet-a']}",
        "offer": f"/jobs/{ids['clicks-hurry']}",
        "ask": f"/ask?job={ids['bert-finetune']}",
        "fleet": "/fleet",
        "simulate": "/simulate",
        "cloud": "/cloud",
        "report": "/report",
        "signin": "/signin",
    }


def open_place(page: "Page", shown: Shown, place: str, jobs: str = "") -> None:
    """Go to a page; where it asks first what to compute, ask as it proposes, or simulate other jobs."""
    page.goto(shown.url + place)
    if place == "/simulate" and jobs:
        page.fill("#synthetic", jobs)
    if place in ("/simulate", "/cloud"):
        page.click("form.card button.main")
        page.wait_for_selector("#study .verdict", timeout=1000 * (WALL_S + 10))


@contextmanager
def sign_in(shown: Shown, folder: Path, theme: str = "light", width: int = 1440, height: int = 900) -> Iterator["Page"]:
    """A page on which the owner is signed in, at the time of the scene."""
    with open_browser(folder, theme, width, height) as browser:
        page = browser.pages[0]
        page.clock.set_fixed_time(datetime.fromtimestamp(shown.scene.source.wall_s(), UTC))
        page.goto(shown.link)
        yield page


def shoot(page: "Page", path: Path) -> Path:
    """A picture of all of a page, once it is drawn."""
    page.evaluate("document.fonts.ready")
    size = page.viewport_size
    assert size is not None
    # Rows that nobody has scrolled to are not drawn.
    page.set_viewport_size({**size, "height": page.evaluate("document.documentElement.scrollHeight")})
    page.wait_for_timeout(500)
    page.screenshot(path=path, full_page=True)
    page.set_viewport_size(size)
    return path


def take(shown: Shown, folder: Path, scratch: Path, chosen: Collection[str]) -> Iterator[Path]:
    """Pictures of all pages in both themes, on a phone and on paper."""
    places = {name: place for name, place in list_places(shown).items() if not chosen or name in chosen}
    for theme in THEMES:
        with sign_in(shown, scratch / theme, theme) as page:
            for name, place in places.items():
                open_place(page, shown, place)
                yield shoot(page, folder / f"{name}-{theme}.png")
    with sign_in(shown, scratch / "phone", "light", *PHONE) as page:
        for name, place in places.items():
            open_place(page, shown, place)
            yield shoot(page, folder / f"{name}-phone.png")
        page.set_viewport_size({"width": 1040, "height": 1470})
        page.emulate_media(media="print")
        for name, place in places.items():
            open_place(page, shown, place)
            yield shoot(page, folder / f"{name}-print.png")


def take_board(scene: HandClockServer, folder: Path, scratch: Path, name: str) -> Iterator[Path]:
    """Pictures of the board of another scene, and of its first job in danger."""
    with show(scene) as shown:
        for theme in THEMES:
            with sign_in(shown, scratch / f"{name}-{theme}", theme) as page:
                yield shoot(page, folder / f"{name}-{theme}.png")
                danger = page.locator(".line.job.risk .who a.name")
                if danger.count():
                    page.goto(shown.url + str(danger.first.get_attribute("href")))
                    yield shoot(page, folder / f"{name}-job-{theme}.png")


def play_whole(folder: Path) -> HandClockServer:
    """The afternoon, with what scripts would have left of it."""
    scene = play(folder)
    ids = {record.name: record.id for record in scene.store.list_jobs()}
    for job in ("vit-large", "resnet-a"):
        write_curves(scene, ids[job])
    write_receipt(scene, ids["resnet-a"])
    return scene


def take_images(folder: Path) -> Iterator[Path]:
    """The pictures that the documentation shows, taken anew."""
    with tempfile.TemporaryDirectory() as name, show(play_whole(Path(name) / "scene")) as shown:
        places = list_places(shown)
        for theme in THEMES:
            with sign_in(shown, Path(name) / theme, theme) as page:
                for image in [image for image, one in IMAGES if one == theme]:
                    open_place(page, shown, places[image])
                    yield shoot(page, folder / f"{image}-{theme}.png")


def main() -> None:
    """Play, show, take."""
    if sys.argv[1] == "--images":
        for path in take_images(Path(sys.argv[2])):
            print(path, flush=True)
        return
    folder, chosen = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        with show(play_whole(scratch / "scene")) as shown:
            for path in take(shown, folder, scratch, chosen):
                print(path, flush=True)
        if not chosen or "storm" in chosen:
            for path in take_board(play_storm(scratch / "later"), folder, scratch, "storm"):
                print(path, flush=True)
        if not chosen or "crowd" in chosen:
            for path in take_board(play_crowd(scratch / "crowd"), folder, scratch, "crowd"):
                print(path, flush=True)
        if not chosen or "empty" in chosen:
            (scratch / "empty").mkdir()
            for path in take_board(HandClockServer(scratch / "empty", devices=16, nodes=2), folder, scratch, "empty"):
                print(path, flush=True)


if __name__ == "__main__":
    main()
