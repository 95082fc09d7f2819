"""The archive of a working directory, as client and server must agree on it: its name, its limits, and their error.

An archive is a plain tar of regular files in sorted order without owners or times: equal folders give equal bytes, and
its SHA-256 is the code hash. Packing is the client's business (`client.packing`), unpacking the server's.
"""

from dataclasses import dataclass

LIMIT_BYTES = 100_000_000
MOST_FILES = 20_000


@dataclass(frozen=True, slots=True)
class Archive:
    """Packed bytes and their SHA-256 in hexadecimal."""

    data: bytes
    code_hash: str


def hash_bytes(data: bytes) -> str:
    """The SHA-256 that names an archive."""
    import hashlib  # here: a command that only asks a server has no use for it

    return hashlib.sha256(data).hexdigest()


def explain_size(what: str, sizes: dict[str, int], limit_bytes: int) -> str:
    """Why a folder or its archive is not taken, and which files to move or ignore."""
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:5]
    listed = ", ".join(f"{name} ({sizes[name] / 1e6:.1f} MB)" for name in largest)
    return (
        f"{what} holds {sum(sizes.values()) / 1e6:.1f} MB in {len(sizes)} files; the limit is "
        f"{limit_bytes / 1e6:g} MB and {MOST_FILES} files. The largest are: {listed}. Name them in .springtideignore, "
        "or keep data elsewhere and give its absolute path"
    )
