"""Object storage that a job names is tried with what the job has; with `run_as` with nothing that is the server's."""

import os
import pwd
from pathlib import Path

import pytest

from springtide.control.storage.places import storage_check_main, storage_checks
from springtide.control.storage.places.storage_checks import check_job_storage
from springtide.errors import InputError

SYSTEM_PYTHON = "/usr/bin/python3"
PLACE = "s3://bucket/a"
TELL = """
import json, os, sys
try:
    open(os.environ["KEY_FILE"]).read()
    could_read = True
except OSError:
    could_read = False
keys = sorted(name for name in os.environ if name.startswith("AWS_"))
print(json.dumps([sys.argv[1], os.getuid(), os.getgroups(), os.environ["HOME"], keys, could_read]))
"""


def find_login() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.skipif(os.geteuid() != 0 or not Path(SYSTEM_PYTHON).exists(), reason="only root can act as other users")
def test_with_run_as_it_is_tried_as_that_user_with_the_environment_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, kept = tmp_path / "tell.py", tmp_path / "key.json"
    told.write_text(TELL)
    kept.write_text("{}")
    kept.chmod(0o600)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder != Path("/tmp"):
            folder.chmod(0o755)
    monkeypatch.setattr(storage_check_main, "__file__", str(told))
    monkeypatch.setattr("sys.executable", SYSTEM_PYTHON)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-server")
    nobody = pwd.getpwnam("nobody")
    with pytest.raises(InputError) as caught:
        check_job_storage(PLACE, {"AWS_REGION": "eu", "KEY_FILE": str(kept)}, "nobody")
    expected = f'["{PLACE}", {nobody.pw_uid}, [{nobody.pw_gid}], "{nobody.pw_dir}", ["AWS_REGION"], false]'
    assert str(caught.value) == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
def test_what_is_wrong_is_told_and_what_cannot_be_tried_is_left_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_checks, "TRY_S", 20.0)
    with pytest.raises(InputError, match="s3://bucket/a"):
        check_job_storage(PLACE, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "a"}, find_login())
    check_job_storage(PLACE, {}, "no-such-user")
    check_job_storage(PLACE, {"A": "a\0b"}, find_login())


def test_a_path_is_not_tried() -> None:
    check_job_storage("/data/x", {}, "no-such-user")
    check_job_storage("file:///data/x", {}, None)
