"""Pictures of every page in both themes: `python -m tests.dashboard.screenshots FOLDER`, or `make screenshots`.

The scene is played on clocks moved by hand, so the pictures change only when the pages do.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.dashboard.browsers import open_browser
from tests.dashboard.scenes import Shown, play, show, write_curves

if TYPE_CHECKING:
    from playwright.sync_api import Page

THEMES = ("light", "dark")


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


def open_place(page: "Page", shown: Shown, place: str) -> None:
    """Go to a page; where it asks first what to compute, ask as it proposes."""
    page.goto(shown.url + place)
    if place in ("/simulate", "/cloud"):
        page.click("form.card button.main")
        page.wait_for_selector("#study .verdict", timeout=60_000)


def take(shown: Shown, folder: Path, scratch: Path) -> Iterator[Path]:
    """Take all pictures."""
    for theme in THEMES:
        with open_browser(scratch / theme, theme) as browser:
            page = browser.pages[0]
            page.goto(shown.link)
            for name, place in list_places(shown).items():
                open_place(page, shown, place)
                page.wait_for_timeout(700)
                path = folder / f"{name}-{theme}.png"
                page.screenshot(path=path, full_page=True)
                yield path
    with open_browser(scratch / "phone", width=390, height=844) as browser:
        page = browser.pages[0]
        page.goto(shown.link)
        page.wait_for_timeout(700)
        page.screenshot(path=folder / "board-phone.png")
        yield folder / "board-phone.png"


def main() -> None:
    """Play, show, take."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        scene = play(Path(scratch) / "scene")
        for name in ("vit-large", "resnet-a"):
            write_curves(scene, scene.store.find_jobs(name)[0].id)
        with show(scene) as shown:
            for path in take(shown, folder, Path(scratch)):
                print(path)


if __name__ == "__main__":
    main()
