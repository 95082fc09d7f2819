"""Storage that is tried before anything rests on it: a wrong URL or wrong credentials cost a sentence, not a run."""

import os
import subprocess
import sys
from collections.abc import Mapping

from springtide.control.storage.places import storage_check_main
from springtide.core.locations import check_location, check_url, find_path
from springtide.errors import InputError
from springtide.executors.local.as_user import find_user
from springtide.executors.local.jobs.environment import allow
from springtide.objects.object_store import ObjectStore

TRY_S = 24.0  # for storage to answer a process


def check_server_storage(url: str) -> None:
    """Refuse a place for what all jobs leave that cannot be written and read; it must be a URL."""
    check_url(url)
    if find_path(url) is not None:
        raise InputError(f"storage {url!r} must be object storage; for a folder that hosts share put the home there")
    ObjectStore(url).check()


def check_job_storage(location: str, environ: Mapping[str, str], run_as: str | None) -> None:
    """Refuse object storage that a job names and could not use, with its environment.

    A job that runs as the server's user has the server's environment too. One of another user is tried for by a process
    of that user: what libraries find by themselves (variables, files, a role of the machine) must not be the server's.
    """
    check_location(location)
    if find_path(location) is not None:
        return
    if run_as is None:
        ObjectStore(location, {**os.environ, **environ}).check()
    elif wrong := try_as(run_as, location, environ):
        raise InputError(wrong)


def try_as(run_as: str, location: str, environ: Mapping[str, str]) -> str:
    """What is wrong with object storage for a user of this system; empty also where that cannot be tried."""
    try:
        user = find_user(run_as)
        ended = subprocess.run(
            (sys.executable, "-I", storage_check_main.__file__, location),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**allow(os.environ), "HOME": user.home, **environ},
            cwd="/",
            timeout=TRY_S,
            user=user.uid,
            group=user.gid,
            extra_groups=list(user.groups),
            umask=0o077,
        )
    except subprocess.TimeoutExpired:
        return f"checkpoint.dir {location} did not answer within {TRY_S:g} s; check the URL"
    except (KeyError, OSError, ValueError):  # no such user, or none that may run our interpreter: its job will tell
        return ""
    return ended.stdout.decode(errors="replace").strip()
