"""Makes text from others safe to store and show: every character can be encoded, and none controls a terminal."""

import re

MOST_CHARACTERS = 4000
# Control characters but for tab and line feed, and the halves of pairs that no encoding can hold.
_UNFIT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def make_plain(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text with unfit characters written as escapes, as in `\\x1b`, and cut where it is too long."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return _UNFIT.sub(lambda found: repr(found[0])[1:-1], cut)


def is_encodable(text: str) -> bool:
    """Whether a text can be kept as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
