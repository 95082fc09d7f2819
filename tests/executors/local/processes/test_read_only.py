"""Folders that a process can read and not write, while others can; tried in processes of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from springtide.executors.local.processes.read_only import forbid_writing

TRY = """
import sys
from pathlib import Path
from springtide.executors.local.processes.read_only import forbid_writing
folder = Path(sys.argv[1])
print(forbid_writing([str(folder / name) for name in ("link", "file", "home")], [str(folder / "home" / "output")]))
for name in ("link/new", "data/below/new", "file", "home/output/new"):
    try:
        (folder / name).write_text("new")
        print(name, "was written")
    except OSError as error:
        print(name, error.strerror)
(folder / "data" / "old").open().close()
"""
#: Root without this right takes the way of other users.
NO_MOUNTS = ("setpriv", "--bounding-set=-sys_admin")


def needs(*command: str) -> None:
    """Skip where the system does not let us, said by a program that is not ours."""
    if shutil.which(command[0]) is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip(f"this system refuses: {' '.join(command)}")


def needs_namespaces() -> None:
    """Skip where this user may have no mounts of its own."""
    needs("unshare", "--mount" if os.geteuid() == 0 else "--map-root-user", "--mount")


@pytest.mark.parametrize("before", [(), NO_MOUNTS], ids=["as-we-are", "in-a-user-namespace"])
def test_inputs_can_be_read_and_not_written_by_the_job_alone(tmp_path: Path, before: tuple[str, ...]) -> None:
    if os.geteuid() == 0:
        needs(*before, *("unshare", "--map-root-user" if before else "--mount", "--mount"))
    else:
        needs_namespaces()
        before = ()
    for name in ("data/below", "home/output"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("data/old", "file"):
        (tmp_path / name).write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    done = subprocess.run([*before, sys.executable, "-c", TRY, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        f"{tmp_path / 'home'} holds folders of the job's own",
        "link/new Read-only file system",
        "data/below/new Read-only file system",
        "file Read-only file system",
        "home/output/new was written",
    ], done.stderr
    (tmp_path / "data" / "ours").write_text("we can")
    assert (tmp_path / "file").read_text() == "old"


def test_nothing_is_done_where_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert forbid_writing([], []) == ""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert forbid_writing(["/data"], []) == "darwin has no mounts of a process's own"


def test_what_is_refused_half_way_leaves_the_process_where_it_was(tmp_path: Path) -> None:
    needs_namespaces()
    code = (
        "import os, sys; from springtide.executors.local.processes.read_only import forbid_writing\n"
        "before = os.readlink('/proc/self/ns/mnt'), os.readlink('/proc/self/ns/user'), os.getuid()\n"
        "print(forbid_writing([sys.argv[1]], []))\n"
        "assert (os.readlink('/proc/self/ns/mnt'), os.readlink('/proc/self/ns/user'), os.getuid()) == before\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "gone")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "inputs cannot be mounted read-only: No such file or directory" in done.stdout
