"""Amounts of memory as users write them: `500 MB`, `16 GiB`."""

import re
from functools import lru_cache

from springtide.errors import JobError

UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
EXAMPLES = "500 MB, 16 GiB or 1.5 TB"
LEAST_BYTES, MOST_BYTES = 10**6, 10**15
_SIZE = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(UNITS)})", re.ASCII)


@lru_cache
def parse_size(text: str, what: str) -> int:
    """The bytes that an amount such as `16 GiB` names: a megabyte at least, a thousand terabytes at most."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise JobError(f"{what} {text!r} is not an amount of memory; write {EXAMPLES}")
    size = float(match[1]) * UNITS[match[2]]
    if not LEAST_BYTES <= size <= MOST_BYTES:
        raise JobError(f"{what} {text!r} must be at least 1 MB and at most 1000 TB")
    return int(size)
