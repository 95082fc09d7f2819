"""Style, scripts and fonts, read once, sent compressed; a digest in each address lets browsers keep them for ever."""

import gzip
import hashlib
import re
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
NAMED = re.compile(rb'url\("([^"]+)"\)')  # a file that a style sheet names, beside it
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
    """Every file by its path under `static`; style sheets name others by the addresses that pages name them by."""
    paths = {path.relative_to(FOLDER).as_posix(): path for path in sorted(FOLDER.rglob("*")) if path.suffix in KINDS}
    assets = {name: load_asset(path.suffix, path.read_bytes()) for name, path in paths.items()}

    def name_file(found: re.Match[bytes]) -> bytes:
        name = found[1].decode()
        return f'url("{write_address(name, assets[name])}")'.encode() if name in assets else found[0]

    for name in [name for name in assets if name.endswith(".css")]:
        assets[name] = load_asset(".css", NAMED.sub(name_file, assets[name].data))
    return assets


def load_asset(suffix: str, data: bytes) -> Asset:
    """One file; fonts are compressed already."""
    packed = b"" if suffix == ".woff2" else gzip.compress(data, 9, mtime=0)
    return Asset(KINDS[suffix], data, packed, hashlib.sha256(data).hexdigest()[:12])


def find_address(name: str) -> str:
    """The address of a file, which changes with what is in it."""
    return write_address(name, load_assets()[name])


def write_address(name: str, asset: Asset) -> str:
    """Where a file is, with its digest."""
    return f"/static/{name}?v={asset.digest}"
