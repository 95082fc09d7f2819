"""Object storage through fsspec: objects appear whole when they are complete, and none is ever overwritten by us.

There is no rename there, so whoever writes several objects writes the one that says they belong together last, and
creates it only if it is not there. Every failure of a store is an OSError with a sentence: whoever writes tries again.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from springtide.core.locations import EXTRA, PACKAGES, check_url, find_path
from springtide.errors import InputError

CHUNK_BYTES = 4 << 20
PART_BYTES = 16 << 20
SMALL_BYTES = 32 << 20  # of an object that is read at once: a job may have put anything in its place


@dataclass(frozen=True, slots=True)
class StorePatience:
    """How long a store may take: to be connected, between two pieces of an answer, and how often it is asked again.

    `rounds` is how often s3fs begins all this anew, as after half an answer. By itself it does so five times: until a
    store that answers nothing was told, a quarter of an hour passed. Longer patience is the business of whoever writes.
    """

    connect_s: float = 10.0
    read_s: float = 60.0
    retries: int = 2
    rounds: int = 2


#: Of who wants to know whether it can be used at all, while somebody waits for the answer.
BRIEF = StorePatience(5.0, 10.0, 0, 1)


class ObjectStore:
    """Objects below one URL, by names with slashes."""

    def __init__(
        self, url: str, environ: Mapping[str, str] | None = None, patience: StorePatience | None = None
    ) -> None:
        check_url(url)
        self.url = url.rstrip("/")
        self.environ = os.environ if environ is None else environ
        parts = urlsplit(self.url)
        self.root = f"{parts.netloc}{parts.path}"
        self.files = open_files(self.url, parts.scheme, self.environ, patience or StorePatience())

    def path(self, name: str) -> str:
        """The path of an object for fsspec."""
        return f"{self.root}/{name}" if name else self.root

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        """Write an object that nobody else writes; returns its size, which the store was asked for."""
        size = 0
        with self.tell(f"write {name}"):
            file = self.files.open(self.path(name), "wb", block_size=PART_BYTES, autocommit=False)
            try:
                for chunk in chunks:
                    file.write(chunk)
                    size += len(chunk)
                file.close()
                file.commit()
            except BaseException:
                file.closed = True  # else it would be completed when it is forgotten
                file.discard()
                raise
            found = int(self.files.info(self.path(name))["size"])
        if found != size:
            raise OSError(f"{self.url}/{name} has {found} bytes where {size} were written")
        return size

    def create(self, name: str, data: bytes) -> bool:
        """Write a small object if there is none of this name; returns whether it was written."""
        with self.tell(f"create {name}"):
            try:
                self.files.pipe_file(self.path(name), data, mode="create")
            except FileExistsError:
                return False
        return True

    def read(self, name: str) -> bytes:
        """A small object; of one that is larger than any of ours, its first SMALL_BYTES."""
        with self.open(name) as file, self.tell(f"read {name}"):
            return file.read(SMALL_BYTES)

    def download(self, name: str, target: Path) -> None:
        """Write an object to a file."""
        with self.open(name) as source, target.open("wb") as file, self.tell(f"read {name}"):
            while chunk := source.read(CHUNK_BYTES):
                file.write(chunk)

    def open(self, name: str) -> BinaryIO:
        """An object to read from any byte on."""
        with self.tell(f"read {name}"):
            opened: BinaryIO = self.files.open(self.path(name), "rb", block_size=PART_BYTES)
        return opened

    def list(self, prefix: str = "") -> list[str]:
        """The names of all objects below a name, sorted."""
        with self.tell("list"):
            try:
                found = self.files.find(self.path(prefix))
            except FileNotFoundError:
                return []
        return sorted(str(path).removeprefix(f"{self.root}/") for path in found)

    def find_age_s(self, name: str) -> float:
        """Seconds since an object was written, by the store's clock and ours."""
        with self.tell(f"tell the age of {name}"):
            return time.time() - float(self.files.modified(self.path(name)).timestamp())

    def remove(self, prefix: str) -> None:
        """Remove all objects below a name."""
        names = self.list(prefix)
        with self.tell(f"remove {prefix}"):
            if names:
                self.files.rm([self.path(name) for name in names])

    def check(self) -> None:
        """See that objects can be written, read and removed here, before anything rests on it; InputError if not.

        Whoever listens at a wrong address may take every request and answer none: that is not waited for.
        """
        name, store = f".springtide-check-{token_hex(8)}", ObjectStore(self.url, self.environ, BRIEF)
        try:
            if not store.create(name, name.encode()) or store.read(name) != name.encode():
                raise OSError(f"what was written to {self.url} is not what is read there")
            store.remove(name)
        except OSError as error:
            raise InputError(f"{error}; check the URL, the bucket, and the credentials in the environment") from None

    @contextmanager
    def tell(self, what: str) -> Iterator[None]:
        """Have every failure be an OSError that names the place; a missing object stays a FileNotFoundError."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.url} cannot {what}: {shorten(error)}") from error
        except FileExistsError:
            raise
        except Exception as error:  # each store has errors of its own
            raise OSError(f"{self.url} cannot {what}: {shorten(error)}") from error


def open_files(url: str, scheme: str, environ: Mapping[str, str], patience: StorePatience) -> Any:
    """The fsspec file system of a URL, with credentials of an environment and no memory of what was listed."""
    if find_path(url) is not None:
        raise InputError(f"{url!r} is a path and not object storage")
    try:
        import fsspec

        options = read_options(scheme, environ, patience)
        files = fsspec.filesystem(scheme, skip_instance_cache=True, use_listings_cache=False, **options)
        files.retries = patience.rounds
        return files
    except ImportError:
        raise InputError(f"{url!r} needs the package {PACKAGES[scheme]}, which is not installed: {EXTRA}") from None


def read_options(scheme: str, environ: Mapping[str, str], patience: StorePatience) -> dict[str, Any]:
    """What fsspec is told of a store: its credentials and address, as their own tools name them, and time limits."""
    if scheme != "s3":
        token = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        return {"token": token, "timeout": patience.read_s} if token else {"timeout": patience.read_s}
    named = {
        "key": environ.get("AWS_ACCESS_KEY_ID"),
        "secret": environ.get("AWS_SECRET_ACCESS_KEY"),
        "token": environ.get("AWS_SESSION_TOKEN"),
        "endpoint_url": environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL"),
    }
    limits = {
        "connect_timeout": patience.connect_s,
        "read_timeout": patience.read_s,
        "retries": {"max_attempts": patience.retries},
    }
    return {**{key: value for key, value in named.items() if value}, "config_kwargs": limits, "session": open_session()}


def open_session() -> Any:
    """A session whose writes do not first ask whether they may come (`Expect: 100-continue`): no limit holds for that.

    A store that took the connection and answered nothing was waited for without end, by a job with its last checkpoint.
    """
    from aiobotocore.session import AioSession
    from botocore.handlers import add_expect_header

    session = AioSession()
    session.unregister("before-call.s3", add_expect_header)
    return session


def shorten(error: BaseException) -> str:
    """What a store says, in one line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
