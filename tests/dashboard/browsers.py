"""Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
CHROMIUM = os.environ.get("SPRINGTIDE_CHROMIUM") or shutil.which("chromium") or ""


@contextmanager
def open_browser(
    folder: Path, theme: str = "light", width: int = 1440, height: int = 900, scripts: bool = True
) -> Iterator["BrowserContext"]:
    """A browser with a profile of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            folder,
            executable_path=CHROMIUM,
            args=list(FLAGS),
            color_scheme="dark" if theme == "dark" else "light",
            viewport={"width": width, "height": height},
            timezone_id="UTC",
            locale="en-GB",
            java_script_enabled=scripts,
        )
        try:
            yield context
        finally:
            context.close()
