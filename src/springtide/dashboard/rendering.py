"""Templates filled in and sent: everything escaped, with headers that let nothing but our own files run."""

import gzip
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse

from springtide import __version__
from springtide.core.durations import show_span
from springtide.dashboard.assets import find_address
from springtide.dashboard.drawings.axis import show_clock

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Vary": "Accept-Encoding",
}
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")  # as sentences of the API tell them
LEAST_PACKED = 2048  # bytes: shorter pages are sent as they are


@cache
def open_templates() -> "Environment":
    """The templates; imported when the first page is asked for, because a server without readers does without."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(asset=find_address, version=__version__)
    templates.filters.update(span=show_long_span, clock=show_clock, iso=show_iso, count=count, number=show_number)
    templates.filters.update(told=tell, money=show_money, coded=show_code)
    return templates


def render(name: str, **values: Any) -> str:
    """A template, filled in."""
    return open_templates().get_template(name).render(**values)


def answer_page(request: Request, name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page for who is signed in, or nobody."""
    user = getattr(request.state, "user", None)
    return send_html(request, render(name, user=user, path=request.url.path, **values), status)


def send_html(request: Request, text: str, status: int = 200) -> HTMLResponse:
    """Text as a page, compressed where the browser takes that."""
    data, headers = text.encode(), dict(HEADERS)
    if len(data) >= LEAST_PACKED and "gzip" in request.headers.get("accept-encoding", ""):
        data, headers["Content-Encoding"] = gzip.compress(data, 4, mtime=0), "gzip"
    return HTMLResponse(data, status, headers)


def write_refusal(sentence: str) -> tuple[dict[str, str], bytes]:
    """What the guard refuses, as a page for whoever asked for one: its headers and its text."""
    told = sentence[:1].upper() + sentence[1:] + "."
    page = render("problem.html", user=None, path="", title="Not possible", sentence=told)
    return HEADERS | {"Content-Type": "text/html; charset=utf-8"}, page.encode()


def go_to(place: str) -> RedirectResponse:
    """Send a browser on, after something was done."""
    return RedirectResponse(place, 303, {"Cache-Control": "no-store"})


def show_long_span(seconds: float | None) -> str:
    """A span for people, or a dash."""
    return "–" if seconds is None else show_span(seconds)


def show_iso(at_s: float) -> str:
    """An instant for scripts, which show it in the reader's own time."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")


def tell(sentence: str) -> "Markup":
    """A sentence of the API, escaped, with its instants as elements that scripts show in the reader's own time."""
    from markupsafe import Markup

    told, place = Markup(""), 0
    for found in INSTANT.finditer(sentence):
        try:
            at_s = datetime.fromisoformat(found[0]).timestamp()
        except ValueError:  # what a user wrote, which only looks like one
            continue
        day, clock = found[0].removesuffix("Z").split("T")
        moment = Markup('<time datetime="{}" data-at="{}">{} {} UTC</time>').format(found[0], at_s, day, clock)
        told, place = told + sentence[place : found.start()] + moment, found.end()
    return told + sentence[place:]


def show_code(text: str) -> "Markup":
    """A text, escaped, with what stands in backticks as code."""
    from markupsafe import Markup

    parts = text.split("`")
    shown = (Markup("<code>{}</code>").format(part) if k % 2 else Markup.escape(part) for k, part in enumerate(parts))
    return Markup("").join(shown)


def show_money(usd: float) -> str:
    """Dollars, to the cent where there are few of them."""
    return f"${usd:,.2f}" if abs(usd) < 1000 else f"${usd:,.0f}"


def count(number: int, noun: str) -> str:
    """So many of something."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show_number(value: float) -> str:
    """A number with as many digits as it deserves."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}".replace(",", "\u202f")
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}".replace(",", "\u202f")
