"""Instants inside sentences that are kept: written as instants, and told as seen from the moment they are read.

A sentence that says "in 10s" is wrong ten seconds later. So what is stored holds a mark of the instant, between two
letters that no text of a user can hold, and `tell_moments` puts words in its place.
"""

import re

from springtide.core.durations import show_instant, show_span

_OPEN, _CLOSE = "\x02", "\x03"
_MARK = re.compile(f"{_OPEN}(-?\\d+(?:\\.\\d+)?){_CLOSE}", re.ASCII)


def mark_moment(at_s: float) -> str:
    """An instant in a sentence that will be read later."""
    return f"{_OPEN}{at_s:.3f}{_CLOSE}"


def tell_moments(sentence: str, now_s: float) -> str:
    """A sentence as it reads now: every instant with how far ahead or back it is."""
    return _MARK.sub(lambda found: show_seen(float(found[1]), now_s), sentence) if _OPEN in sentence else sentence


def show_seen(at_s: float, now_s: float) -> str:
    """An instant, and how far ahead or back it is."""
    ahead_s = at_s - now_s
    return f"{show_instant(at_s)} ({f'in {show_span(ahead_s)}' if ahead_s >= 0 else f'{show_span(-ahead_s)} ago'})"
