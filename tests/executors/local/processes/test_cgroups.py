"""Control groups as the files they are: which limits are written where, and what is read back.

The kernel's own part, ending all that is in a group, is tried by `test_hostile_workers` where there is a cgroup v2.
"""

from pathlib import Path

import pytest

from springtide.executors.local.processes import cgroups
from springtide.executors.local.processes.cgroups import ControlGroup, GroupLimits, find_own_group

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
    ControlGroup(both, GroupLimits(memory_bytes=1 << 30, pids=500))
    written = [(both / name).read_text() for name in ("pids.max", "memory.max", "memory.oom.group")]
    assert written == ["500", str(1 << 30), "1"]
    none = ControlGroup(tmp_path / "none", GroupLimits(memory_bytes=1 << 30))
    assert list(none.path.iterdir()) == [], "nothing is made up"


def test_an_end_for_lack_of_memory_is_known(tmp_path: Path) -> None:
    group = ControlGroup(make_files(tmp_path / "job", memory_events="low 0\noom 1\noom_kill 0\n"), GroupLimits())
    assert not group.has_passed_memory
    make_files(group.path, memory_events="low 0\noom 2\noom_kill 1\n")
    assert group.has_passed_memory
    assert not ControlGroup(tmp_path / "other", GroupLimits()).has_passed_memory


def test_our_own_group_is_found_beside_the_older_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setattr(cgroups, "MEMBERSHIP", tmp_path / "cgroup")
    assert find_own_group() is None, "no such files: no Linux"
    (tmp_path / "mountinfo").write_text(MOUNTS.format(root="/sys/fs/cgroup/unified"))
    (tmp_path / "cgroup").write_text("5:pids:/box\n0::/user.slice/server.service\n")
    assert find_own_group() == Path("/sys/fs/cgroup/unified/user.slice/server.service")
    (tmp_path / "cgroup").write_text("5:pids:/box\n")
    assert find_own_group() is None
