"""Where files lie, as a user writes it: a path, or a URL with a scheme. Pure: nothing is looked at.

`file:///shared/runs` is a path that all hosts see; `s3://bucket/runs` and `gs://bucket/runs` are for fsspec.
"""

import posixpath
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from springtide.errors import InputError

#: The schemes of object storage, and the package that fsspec needs for each.
PACKAGES = {"s3": "s3fs", "gs": "gcsfs"}
SCHEMES = ("file", *PACKAGES)
EXTRA = "pip install 'springtide[storage]'"


def is_url(text: str) -> bool:
    """Whether a place is written as a URL."""
    return "://" in text


def check_location(text: str) -> str:
    """The place as written; InputError if it is neither an absolute path nor a URL that can be used."""
    if is_url(text):
        check_url(text)
    elif not text.startswith("/") or ".." in PurePosixPath(text).parts or "\0" in text:
        raise InputError(f"{text!r} must be an absolute path without '..', or a URL ({', '.join(SCHEMES)}://...)")
    return text


def check_url(text: str) -> None:
    """Refuse a URL of a scheme that is not known, without a bucket, with a password, or with parts that mean others."""
    try:
        parts = urlsplit(text)
        scheme, place, name, password = parts.scheme, parts.netloc, parts.username, parts.password
    except ValueError as error:
        raise InputError(f"{text!r} is not a URL ({error}); write s3://bucket/folder") from None
    if scheme not in SCHEMES:
        raise InputError(f"{text!r} has the scheme {scheme!r}; there are: {', '.join(f'{one}://' for one in SCHEMES)}")
    if name is not None or password is not None:
        raise InputError(f"a {scheme}:// URL holds no credentials; give them in the environment (env and secrets)")
    path = unquote(parts.path)
    if parts.query or parts.fragment or ".." in path.split("/") or "\0" in path:
        raise InputError(f"{text!r} must end in a plain path, without '?', '#' and '..'")
    if scheme == "file" and (place or len(parts.path) < 2):
        raise InputError(f"{text!r} must be file:///PATH: an absolute path that every host sees, three slashes")
    if scheme != "file" and not place:
        raise InputError(f"{text!r} names no bucket; write {scheme}://BUCKET/FOLDER")


def find_path(text: str) -> str | None:
    """The path that a place is on this machine's file systems; None if it is object storage."""
    if not is_url(text):
        return text
    parts = urlsplit(text)
    return unquote(parts.path) if parts.scheme == "file" else None


def spell(text: str) -> str:
    """A place in the one spelling that all ways to write it have: `/data//x/.` and `file:///data/x/` are `/data/x`."""
    path = find_path(text)
    if path is not None:
        return posixpath.normpath("/" + path.lstrip("/"))
    parts = urlsplit(text)
    return f"{parts.scheme}://{parts.netloc}{posixpath.normpath('/' + parts.path.lstrip('/'))}"


def join(location: str, *parts: str) -> str:
    """A place below another."""
    return "/".join([location.rstrip("/"), *parts])
