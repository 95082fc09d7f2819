"""A host on which nothing can run does not join, and what a job meets there is not held against the job."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from springtide.executors.hosts import host_agent, host_fitness
from springtide.executors.hosts.host_agent import HostSettings
from springtide.executors.hosts.host_fitness import check_fitness, is_hosts_trouble
from springtide.executors.local.jobs.hangs import Hang


def set_room(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))


def test_a_host_without_torch_or_room_does_not_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be given one job after the other, and each would end there."""
    monkeypatch.setattr(host_agent, "serve", lambda settings: pytest.fail("it serves"))
    monkeypatch.setattr(host_agent, "adopt_orphans", lambda: None)
    settings = HostSettings(tmp_path, "h1", state_dir=tmp_path)
    with monkeypatch.context() as changed:
        changed.setattr(host_fitness, "find_own_versions", lambda: {"springtide": "0", "torch": ""})
        assert host_agent.run(settings) == 2
    assert "refused: host h1 has no torch in" in capsys.readouterr().out
    set_room(monkeypatch, 5 << 20)
    assert host_agent.run(settings) == 2
    assert "refused: host h1 has 5 MiB left" in capsys.readouterr().out
    set_room(monkeypatch, 1 << 40)
    check_fitness("h1", tmp_path)


@pytest.mark.parametrize(
    ("error", "own_disk", "free", "is_hosts"),
    [
        (OSError(errno.ENOSPC, "full"), True, 1 << 40, True),
        (OSError(errno.ENOSPC, "full"), False, 0, True),
        (OSError(errno.ENOSPC, "full"), False, 1 << 40, False),
        (OSError(errno.EMFILE, "too many open files"), False, 1 << 40, True),
        (MemoryError(), False, 1 << 40, True),
        (FileNotFoundError(errno.ENOENT, "no such file"), False, 1 << 40, False),
        (PermissionError(errno.EACCES, "not for us"), True, 0, False),
        (KeyError("no such user"), False, 0, False),
    ],
    ids=["own disk", "own and another", "the home's", "files", "memory", "missing", "forbidden", "ours"],
)
def test_only_what_another_host_would_not_meet_is_the_hosts_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, own_disk: bool, free: int, is_hosts: bool
) -> None:
    """A job whose own files are wrong must not send one host after the other away."""
    set_room(monkeypatch, free)
    assert is_hosts_trouble(error, tmp_path, own_disk) == is_hosts


def test_processes_of_several_hosts_that_stand_still_say_where_to_look() -> None:
    hung, stopped = Hang("hung", "no step for 30 s"), Hang("stopped", "process p0 has been stopped")
    assert "hosts h1, h2 all answer" in hung.describe(("h1", "h2")) and "network" in hung.describe(("h1", "h2"))
    assert hung.describe(("h1", "h1")) == hung.describe(("",)) == hung.reason
    assert stopped.describe(("h1", "h2")) == stopped.reason
