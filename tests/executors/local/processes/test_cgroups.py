"""Control groups as the files they are: which limits are written where, and what is read back.

The kernel's own part, ending all that is in a group, is tried by `test_hostile_workers` where there is a cgroup v2.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from springtide.executors.local.processes import cgroups
from springtide.executors.local.processes.cgroups import (
    SERVICE,
    ControlGroup,
    GroupLimits,
    find_own_group,
    is_delegated,
    move_down,
    open_groups,
)

MOUNTS = (
    "30 24 0:27 / /sys/fs/cgroup/pids rw shared:9 - cgroup cgroup rw,pids\n"
    "31 24 0:28 / {root} rw,relatime shared:4 - cgroup2 cgroup2 rw\n"
)


def make_files(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def test_limits_are_set_where_their_controllers_are_ours_to_use(tmp_path: Path) -> None:
    both = make_files(tmp_path / "both", pids_max="max", memory_max="max", memory_oom_group="0")
    group = ControlGroup(both, pids=500, memory_bytes=1 << 30)
    written = [(both / name).read_text() for name in ("pids.max", "memory.max", "memory.oom.group")]
    assert written == ["500", str(1 << 30), "1"] and group.holds_memory
    none = ControlGroup(tmp_path / "none", pids=500, memory_bytes=1 << 30)
    assert list(none.path.iterdir()) == [], "nothing is made up"
    assert not none.holds_memory


def test_an_end_for_lack_of_memory_is_known(tmp_path: Path) -> None:
    group = ControlGroup(make_files(tmp_path / "job", memory_events="low 0\noom 1\noom_kill 0\n"))
    assert not group.has_passed_memory
    make_files(group.path, memory_events="low 0\noom 2\noom_kill 1\n")
    assert group.has_passed_memory
    make_files(group.path, memory_events="low 0\noom 0\noom_kill 1\n")
    assert not group.has_passed_memory, "the whole machine had none left, which is no fault of this job"
    assert not ControlGroup(tmp_path / "other").has_passed_memory


def test_our_own_group_is_found_beside_the_older_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setattr(cgroups, "MEMBERSHIP", tmp_path / "cgroup")
    assert find_own_group() is None, "no such files: no Linux"
    (tmp_path / "mountinfo").write_text(MOUNTS.format(root="/sys/fs/cgroup/unified"))
    (tmp_path / "cgroup").write_text("5:pids:/box\n0::/user.slice/server.service\n")
    assert find_own_group() == Path("/sys/fs/cgroup/unified/user.slice/server.service")
    (tmp_path / "cgroup").write_text("5:pids:/box\n")
    assert find_own_group() is None


@pytest.fixture
def service() -> Iterator[ControlGroup]:
    """A real group with a process in it, as that of a service."""
    own = find_own_group()
    if own is None or not os.access(own / "cgroup.procs", os.W_OK):
        pytest.skip("there is no cgroup v2 in which this user may make groups")
    group = ControlGroup(own / f"springtide-test-{os.getpid()}")
    try:
        os.setxattr(group.path, "user.delegate", b"0")
    except OSError:
        group.remove()
        pytest.skip("the control groups of this kernel bear no marks (before Linux 5.7)")
    with subprocess.Popen(["sleep", "60"]) as process:
        group.add(process.pid)
        yield group
        process.kill()
    for path in sorted(group.path.rglob("*/"), reverse=True):
        path.rmdir()
    group.remove()


def test_the_processes_of_a_service_leave_room_for_groups_with_limits(service: ControlGroup) -> None:
    assert not is_delegated(service.path)
    os.setxattr(service.path, "user.delegate", b"1")
    assert is_delegated(service.path)
    held = service.list()
    move_down(service.path)
    assert held and service.list() == [] and ControlGroup(service.path / SERVICE).list() == held


@pytest.mark.parametrize("place", ["", SERVICE])
def test_groups_of_jobs_lie_beside_the_processes_of_the_service(
    service: ControlGroup, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both for the agent that moves them, and for the one after it, which finds itself there."""
    os.setxattr(service.path, "user.delegate", b"1")
    monkeypatch.setattr(cgroups, "find_own_group", lambda: service.path / place if place else service.path)
    if place:
        move_down(service.path)
    groups = open_groups("mark", GroupLimits())
    assert groups is not None and groups.path == service.path / "springtide-mark"
    assert service.list() == []
