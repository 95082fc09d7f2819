"""Where files lie: paths and URLs, refused in a sentence where they cannot be meant."""

import pytest

from springtide.core.locations import check_location, find_path, join, spell
from springtide.errors import InputError


@pytest.mark.parametrize("text", ["/runs/a", "file:///runs/a", "s3://bucket/runs", "gs://bucket/a/b", "s3://bucket"])
def test_places_that_can_be_used(text: str) -> None:
    assert check_location(text) == text


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("runs/a", "absolute path"),
        ("/runs/../etc", r"without '\.\.'"),
        ("http://bucket/a", "has the scheme 'http'; there are: file://, s3://, gs://"),
        ("s3:///a", "names no bucket; write s3://BUCKET/FOLDER"),
        ("s3://key:hidden@bucket/a", "holds no credentials"),
        ("s3://bucket/../a", "plain path"),
        ("s3://bucket/a?b=c", "plain path"),
        ("file:///runs/%2e%2e/etc", "plain path"),
        ("file:///runs/%00", "plain path"),
        ("file://host/a", "file:///PATH"),
        ("file:///", "file:///PATH"),
        ("s3://[bucket/a", "is not a URL"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_rule(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule) as caught:
        check_location(text)
    assert "hidden" not in str(caught.value)


def test_only_object_storage_has_no_path() -> None:
    assert [find_path(text) for text in ("/a/b", "file:///a/b%20c", "s3://a/b")] == ["/a/b", "/a/b c", None]
    assert join("s3://a/b/", "jobs", "x") == "s3://a/b/jobs/x"


def test_all_ways_to_write_a_place_have_one_spelling() -> None:
    paths = ("/data/x", "/data//x", "//data/x", "/data/./x/", "file:///data/x", "file:///data/%78/.")
    assert {spell(text) for text in paths} == {"/data/x"}
    assert {spell(text) for text in ("s3://a/b", "s3://a//b/", "S3://a/./b")} == {"s3://a/b"}
    assert len({spell(text) for text in ("s3://a/b", "gs://a/b", "s3://b/b", "/a/b")}) == 4
