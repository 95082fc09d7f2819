"""Storage that is tried before anything rests on it: a wrong URL or wrong credentials cost a sentence, not a run."""

import os
from collections.abc import Mapping

from springtide.core.locations import check_location, check_url, find_path
from springtide.errors import InputError
from springtide.objects.object_store import ObjectStore


def check_server_storage(url: str) -> None:
    """Refuse a place for what all jobs leave that cannot be written and read; it must be a URL."""
    check_url(url)
    if find_path(url) is not None:
        raise InputError(f"storage {url!r} must be object storage; for a folder that hosts share put the home there")
    ObjectStore(url).check()


def check_job_storage(location: str, environ: Mapping[str, str], own: bool) -> None:
    """Refuse object storage that a job names and could not use, with its environment and, if `own`, the server's."""
    check_location(location)
    if find_path(location) is None:
        ObjectStore(location, {**(os.environ if own else {}), **environ}).check()
