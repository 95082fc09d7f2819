"""Style, scripts and fonts, read once, sent compressed; a digest in each address lets browsers keep them for ever."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file, as it is and compressed (empty where that does not help)."""

    kind: str
    data: bytes
    packed: bytes
    digest: str


@cache
def load_assets() -> dict[str, Asset]:
    """Every file by its path under `static`."""
    return {
        path.relative_to(FOLDER).as_posix(): load_asset(path)
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in KINDS
    }


def load_asset(path: Path) -> Asset:
    """One file; fonts are compressed already."""
    data = path.read_bytes()
    packed = b"" if path.suffix == ".woff2" else gzip.compress(data, 9, mtime=0)
    return Asset(KINDS[path.suffix], data, packed, hashlib.sha256(data).hexdigest()[:12])


def find_address(name: str) -> str:
    """The address of a file, which changes with what is in it."""
    return f"/static/{name}?v={load_assets()[name].digest}"
