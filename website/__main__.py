"""Write what the site is built from: `python -m website OUT` takes the pages of docs/, those of the root and the HTTP
reference, turns the links that leave docs/, and fills in the menu.

A link that leads to a page or a heading that is not there ends it: all of them are told.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

import yaml

from springtide.control.api.routes import describe_api
from springtide.dashboard.studies.study_routes import add_study_routes
from website.http_reference import write_reference

ROOT = Path(__file__).parents[1]
#: Pages that lie beside docs/, and what they are called in the site.
BESIDE = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
WRITTEN = "http.md"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CODE = re.compile(r"^(```+|~~~+).*?^\1", re.MULTILINE | re.DOTALL)
Nav = Any  # a page, a folder, a titled part, or a list of those, as YAML has it


def main(out: Path) -> int:
    """Write all pages and the settings; how many links are broken."""
    pages = read_pages()
    broken = [error for source, text in pages.items() for error in list_broken(source, text, pages)]
    if broken:
        print(*broken, sep="\n", file=sys.stderr)
        return 1
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs", out / "pages", ignore=shutil.ignore_patterns("*.md"))
    for source, text in pages.items():
        at = out / "pages" / name_page(source)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(LINK.sub(lambda found, source=source: turn_link(found, source), text))  # type: ignore[misc]
    settings = yaml.safe_load((ROOT / "website" / "mkdocs.yml").read_text())
    settings["nav"] = expand(settings["nav"], set(list_named(settings["nav"])), sorted(map(name_page, pages)))
    (out / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False))
    return 0


def read_pages() -> dict[str, str]:
    """Every page by its path from the root."""
    paths = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in BESIDE)]
    pages = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(paths)}
    return pages | {f"docs/{WRITTEN}": write_reference(describe_api(add_study_routes))}


def name_page(source: str) -> str:
    """What a page is called in the site."""
    return BESIDE.get(source) or source.removeprefix("docs/")


def list_broken(source: str, text: str, pages: dict[str, str]) -> Iterator[str]:
    """The links of a page that lead nowhere."""
    for _, _, target in LINK.findall(CODE.sub("", text)):
        path, _, anchor = target.partition("#")
        if ":" in path:
            continue
        place = find_place(source, path) if path else source
        if place not in pages and not (ROOT / place).exists():
            yield f"{source}: {target} leads to {place}, which is not there"
        elif anchor and place in pages and anchor not in list_anchors(pages[place]):
            yield f"{source}: {target} leads to a heading that {place} does not have"


def find_place(source: str, path: str) -> str:
    """Where a link leads, from the root."""
    return normpath(f"{Path(source).parent.as_posix()}/{path}")


def list_anchors(text: str) -> set[str]:
    """The headings of a page, as links name them."""
    return {name_anchor(heading) for heading in HEADING.findall(CODE.sub("", text))}


def name_anchor(heading: str) -> str:
    """A heading as links name it."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


def turn_link(found: re.Match[str], source: str) -> str:
    """A link as the site needs it: to code, which the site does not have, only its text stays."""
    image, text, target = found.groups()
    path, _, anchor = target.partition("#")
    if not path or ":" in path:
        return found[0]
    place = find_place(source, path)
    if (place not in BESIDE and not place.startswith("docs/")) or (ROOT / place).is_dir():
        return text
    turned = relpath(name_page(place), Path(name_page(source)).parent.as_posix() or ".")
    return f"{image}[{text}]({turned}{'#' + anchor if anchor else ''})"


def list_named(nav: Nav) -> Iterator[str]:
    """The pages that a menu names one by one."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from list_named(part)


def expand(nav: Nav, named: set[str], pages: list[str]) -> Nav:
    """A menu with the pages of its folders, but for those that it names elsewhere."""
    if isinstance(nav, dict):
        return {title: expand(part, named, pages) for title, part in nav.items()}
    if isinstance(nav, list):
        expanded = [expand(part, named, pages) for part in nav]
        return [page for part in expanded for page in (part if isinstance(part, list) else [part])]
    if not nav.endswith("/"):
        return nav
    folder = nav.rstrip("/") or "."
    return [page for page in pages if Path(page).parent.as_posix() == folder and page not in named]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
