"""Every page in both themes, read by axe-core: nothing serious, nothing on the console; and all of it on a phone.

Pictures of what was read are left in `build/screenshots`, to be looked at.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.dashboard.browsers import CHROMIUM, open_browser
from tests.dashboard.scenes import show
from tests.dashboard.screenshots import PHONE, THEMES, list_places, open_place, play_whole, shoot

pytest.importorskip("playwright.sync_api", reason="the browser tests need: pip install playwright")
AXE = Path("build/axe/package/axe.min.js")
pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="the browser tests need a browser: apt-get install chromium"),
    pytest.mark.skipif(not AXE.is_file(), reason="the tests of accessibility need axe-core: make axe"),
]
PICTURES = Path("build/screenshots")
SEVERE = ("serious", "critical")
#: Whether a page is no wider than the phone, and whether its heading can be seen; after two frames, because curves are
#: drawn anew by the event of the new size, which comes with the first.
ON_A_PHONE = """async () => {
    for (const _ of [1, 2]) await new Promise(requestAnimationFrame);
    return [document.documentElement.scrollWidth <= document.documentElement.clientWidth,
        [...document.querySelectorAll("main h1, main h2")].some(one => one.checkVisibility())];
}"""


@pytest.mark.whole
def test_no_page_shuts_anybody_out(tmp_path: Path) -> None:
    found, complaints, phones = [], [], {}
    PICTURES.mkdir(parents=True, exist_ok=True)
    with show(play_whole(tmp_path / "scene")) as shown, open_browser(tmp_path / "profile") as browser:
        page = browser.pages[0]
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.clock.set_fixed_time(datetime.fromtimestamp(shown.scene.source.wall_s(), UTC))  # as in the scene
        page.goto(shown.link)
        for name, place in list_places(shown).items():
            open_place(page, shown, place, "jobs=12,gap=600,seed=0")
            page.evaluate(AXE.read_text())
            for theme in THEMES:
                page.emulate_media(color_scheme=theme, reduced_motion="reduce")
                for one in page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]:
                    if one["impact"] in SEVERE:
                        found.append((name, theme, one["id"], one["nodes"][0]["html"][:120]))
                shoot(page, PICTURES / f"{name}-{theme}.png")
            page.emulate_media(color_scheme="light")
            page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
            phones[name] = page.evaluate(ON_A_PHONE)
            shoot(page, PICTURES / f"{name}-phone.png")
            page.set_viewport_size({"width": 1440, "height": 900})
    assert found == []
    assert complaints == []
    assert phones == {name: [True, True] for name in phones}
