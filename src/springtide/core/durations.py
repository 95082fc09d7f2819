"""Spans and instants as users write them: `90s`, `1h30m`, RFC 3339 with a zone; and as they read them."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import inf, isfinite

from springtide.errors import JobError

UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
EXAMPLES = "90s, 45m, 6h, 2d or 1h30m"
LONGEST_S = 10 * 365 * 86400.0
LAST_S = 253402300799.0  # the last second of the year 9999
_SPAN = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}([Tt ]|$)", re.ASCII)


@lru_cache
def parse_span(text: str, what: str) -> float:
    """The seconds that a span such as `1h30m` names: positive, at most ten years."""
    match = _SPAN.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise JobError(f"{what} {text!r} is not a span of time; write {EXAMPLES}")
    seconds = sum(float(part) * unit for part, unit in zip(match.groups(), UNITS_S.values(), strict=True) if part)
    if not isfinite(seconds) or not 0 < seconds <= LONGEST_S:
        raise JobError(f"{what} {text!r} must be longer than 0 s and at most ten years")
    return seconds


@lru_cache
def is_instant(text: str) -> bool:
    """Whether a text looks like a date, hence is to be read as an instant and not as a span."""
    return _INSTANT.match(text.strip()) is not None


def parse_instant(text: str, what: str) -> datetime:
    """The instant, in UTC, that RFC 3339 text with a zone names; without one it is refused, shown as local time."""
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise JobError(f"{what} {text!r} is not a date and time; write 2026-11-16T09:00:00+01:00") from None
    if instant.tzinfo is None:
        raise JobError(f"{what} {text!r} has no time zone; if you mean the local one, write {_show_local(instant)!r}")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise JobError(f"{what} {text!r} lies outside the years that can be counted; choose an earlier one") from None


def _show_local(instant: datetime) -> str:
    try:
        return instant.astimezone().isoformat()
    except (OverflowError, ValueError, OSError):
        return instant.isoformat() + "Z"


def parse_deadline(text: str, now_s: float, what: str = "deadline") -> float:
    """Seconds since 1970 of a deadline: a span counts from now, an instant stands for itself and must be ahead."""
    if not is_instant(text):
        return now_s + parse_span(text, what)
    deadline_s = parse_instant(text, what).timestamp()
    if deadline_s <= now_s:
        raise JobError(f"{what} {text!r} is in the past; it is now {show_instant(now_s)}")
    if deadline_s > now_s + LONGEST_S:
        raise JobError(f"{what} {text!r} is more than ten years ahead")
    return deadline_s


def show_instant(at_s: float) -> str:
    """RFC 3339 in UTC, to the second; what lies beyond the years that can be written, as the last of them."""
    counted_s = round(min(max(at_s, 0.0), LAST_S))
    return (datetime.fromtimestamp(0, UTC) + timedelta(seconds=counted_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def show_instants(**instants_s: float | None) -> dict[str, str | None]:
    """The same for several by name; None stays None."""
    return {name: None if at_s is None else show_instant(at_s) for name, at_s in instants_s.items()}


def show_span(seconds: float) -> str:
    """A span for people: two units at most."""
    if seconds == inf:
        return "never"
    if seconds < 0:
        return "-" + show_span(-seconds)
    if seconds < 10:
        return f"{seconds:.1f}s"
    left = round(seconds)
    parts: list[str] = []
    for unit, size_s in UNITS_S.items():
        count, left = divmod(left, int(size_s))
        if count or parts:
            parts.append(f"{count}{unit}")
    kept = parts[:2] if len(parts) > 1 and not parts[1].startswith("0") else parts[:1]
    return "".join(kept)
