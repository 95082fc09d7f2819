"""A server and a store, for tests of what lies in object storage."""

from collections.abc import Iterator

import pytest
from tests.objects.s3_server import S3Server, run_s3


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with run_s3() as server:
        yield server
