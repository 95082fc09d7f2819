"""A preparation under way: the process that runs a job's setup and looks after its inputs; never waited for."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from springtide.executors.local.as_user import SystemUser, find_user
from springtide.executors.local.jobs.environment import allow, find_home
from springtide.executors.local.processes import prepare_main
from springtide.executors.local.safe_files import make_given
from springtide.executors.protocol import JobSpec

MOST_OUTPUT = 1 << 20  # of what setup commands print, the end is kept
MOST_REPORT = 1 << 20  # of what the preparation says: it runs what a job's user has written


@dataclass(frozen=True, slots=True)
class Prepared:
    """What came of a preparation: fingerprints, or a code and a reason; and what was printed."""

    fingerprints: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    reason: str = ""
    printed: bytes = b""


class Preparing:
    """One preparation. `setup` is left out where only inputs are to be looked at again."""

    def __init__(self, spec: JobSpec, setup: bool = True) -> None:
        assert spec.preparation is not None, "only jobs that need one are prepared"
        request = asdict(spec.preparation) | {"folder": spec.folder}
        request = request if setup else request | {"setup": []}
        self.said, self.printed = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        user = None if spec.run_as is None else make_folders(spec)
        command = [sys.executable, "-I", str(Path(prepare_main.__file__))]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self.said,
            stderr=self.printed,
            env={**allow(os.environ), **find_home(spec)},
            start_new_session=True,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else list(user.groups),
        )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request).encode())
            self.process.stdin.close()

    def poll(self) -> Prepared | None:
        """What came of it; None while it goes on."""
        code = self.process.poll()
        if code is None:
            return None
        self.said.seek(0)
        size = self.printed.seek(0, os.SEEK_END)
        self.printed.seek(max(0, size - MOST_OUTPUT))
        printed = self.printed.read()
        try:
            report = json.loads(self.said.read(MOST_REPORT))
        except ValueError:
            last = printed.decode(errors="replace").strip().rpartition("\n")[2]
            report = {"code": "setup_failed", "reason": f"the preparation ended with code {code}: {last or 'no word'}"}
        self.close()
        return Prepared(report.get("fingerprints", {}), report.get("code", ""), report.get("reason", ""), printed)

    def kill(self) -> None:
        """End it, with all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Let go of its files."""
        self.said.close()
        self.printed.close()


def make_folders(spec: JobSpec) -> SystemUser:
    """Have the folders in which another user prepares the job; returns that user."""
    assert spec.preparation is not None and spec.run_as is not None
    user = find_user(spec.run_as)
    wanted = [spec.preparation.inputs_dir, spec.preparation.cache_dir] if spec.preparation.inputs else []
    for folder in (*wanted, *([spec.folder] if spec.preparation.setup else [])):
        make_given(Path(folder), Path(folder).parent, user.uid, user.gid)
    return user
