"""Object storage: written whole, created once, told in a sentence where it fails."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.objects.s3_server import BUCKET, S3Server, run_s3

from springtide.errors import InputError
from springtide.objects import object_store
from springtide.objects.object_store import ObjectStore


@pytest.fixture
def store(s3: S3Server, request: pytest.FixtureRequest) -> ObjectStore:
    return ObjectStore(f"s3://{BUCKET}/{request.node.name}/", s3.environ)


def test_what_is_written_is_read_listed_and_removed(store: ObjectStore, tmp_path: Path) -> None:
    assert store.write("a/big", [b"x" * (5 << 20)] * 5) == 25 << 20
    assert store.write("a/small", [b"1", memoryview(b"23")]) == 3
    assert store.write("ab", []) == 0
    store.download("a/big", tmp_path / "big")
    assert (tmp_path / "big").stat().st_size == 25 << 20
    assert (store.read("a/small"), store.list("a"), store.list()) == (
        b"123",
        ["a/big", "a/small"],
        ["a/big", "a/small", "ab"],
    )
    with store.open("a/small") as file:
        file.seek(1)
        assert file.read() == b"23"
    store.remove("a")
    assert store.list() == ["ab"]


def test_of_an_object_that_is_too_large_only_the_beginning_is_read(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "SMALL_BYTES", 10)
    store.write("large", [b"x" * 1000])
    assert store.read("large") == b"x" * 10


def test_a_name_is_created_once(store: ObjectStore) -> None:
    assert (store.create("m", b"1"), store.create("m", b"2"), store.read("m")) == (True, False, b"1")


def test_half_an_object_is_none(store: ObjectStore) -> None:
    def break_off() -> Iterator[bytes]:
        yield b"x" * (20 << 20)
        raise RuntimeError("the process ends here")

    with pytest.raises(OSError, match="cannot write half: the process ends here"):
        store.write("half", break_off())
    assert store.list() == []


def test_what_is_missing_is_not_there(store: ObjectStore) -> None:
    assert store.list("nothing") == []
    with pytest.raises(FileNotFoundError, match="cannot read nothing"):
        store.read("nothing")


def test_a_store_that_works_passes_and_is_left_empty(store: ObjectStore) -> None:
    store.check()
    assert store.list() == []


def test_a_wrong_bucket_or_address_is_told(s3: S3Server) -> None:
    with pytest.raises(InputError, match=r"s3://nobody/x cannot create .*bucket does not exist; check the URL"):
        ObjectStore("s3://nobody/x", s3.environ).check()
    nowhere = {**s3.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    with pytest.raises(InputError, match=r"Could not connect .*; check the URL, the bucket, and the credentials"):
        ObjectStore(f"s3://{BUCKET}/x", nowhere).check()


def test_whoever_takes_every_request_and_answers_none_is_not_waited_for(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server began for ten minutes, or a submission did, before the address was said to be wrong."""
    monkeypatch.setattr(object_store, "BRIEF", replace(object_store.BRIEF, read_s=0.5))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nowhere = {**s3.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        with pytest.raises(InputError, match=r"cannot create .*; check the URL, the bucket, and the credentials"):
            ObjectStore(f"s3://{BUCKET}/x", nowhere).check()


def test_credentials_that_the_store_does_not_know_are_told_and_not_repeated() -> None:
    with run_s3(is_open=False) as server:
        with pytest.raises(InputError, match=r"cannot create .*check the URL, the bucket, and the credentials") as told:
            ObjectStore(f"s3://{BUCKET}/jobs", server.environ).check()
        assert server.environ["AWS_SECRET_ACCESS_KEY"] not in str(told.value)


def test_a_package_that_is_not_installed_is_named() -> None:
    pytest.importorskip("fsspec")
    try:
        import gcsfs  # type: ignore[import-untyped, import-not-found, unused-ignore]  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match=r"needs the package gcsfs, .* pip install 'springtide\[storage\]'"):
            ObjectStore("gs://bucket/x")
