"""The state directory: where everything of a server lies on disk. Mode 0700, made on first use."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide.core.locations import join
from springtide.errors import StateError
from springtide.executors.local.paths import open_private
from springtide.executors.local.safe_files import hold, take_back


def find_home() -> "StateDir":
    """`$SPRINGTIDE_HOME`, or the user's state directory."""
    given = os.environ.get("SPRINGTIDE_HOME")
    if given:
        return StateDir(Path(given).absolute())
    state = os.environ.get("XDG_STATE_HOME")
    return StateDir((Path(state) if state else Path.home() / ".local" / "state") / "springtide")


@dataclass(frozen=True, slots=True)
class JobPaths:
    """Where the processes of a job read and write; `code` holds the unpacked archives of all jobs."""

    code: Path
    logs: Path
    output: Path
    checkpoints: Path
    scratch: Path
    secrets_file: Path


@dataclass(frozen=True, slots=True)
class StateDir:
    """Paths below one state directory, and the object storage for what jobs leave, if there is one."""

    root: Path
    storage: str | None = None
    #: Whether processes on several hosts write below it: one that was cut off may write beside its successor.
    several_hosts: bool = False

    def make(self) -> "StateDir":
        """Create the directory, for this user's eyes only; one that others may pass through stays so."""
        try:
            for folder in (self.root, self.code, self.jobs):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                if folder.stat().st_mode & 0o066:
                    folder.chmod(0o700)
        except OSError as error:
            raise StateError(
                f"state directory {str(self.root)!r} cannot be used ({error.strerror}); set SPRINGTIDE_HOME to another"
            ) from None
        return self

    def let_through(self, others: bool = True) -> None:
        """Let other users reach what is theirs below, or not; they can list nothing. For jobs with `run_as`."""
        for folder in (self.root, self.code, self.jobs):
            folder.chmod(0o711 if others else 0o700)

    def note_database(self, url: str | None) -> None:
        """Write down that the jobs here are in a database elsewhere, or that they are not."""
        if url is None:
            self.elsewhere.unlink(missing_ok=True)
        else:
            self.elsewhere.write_text(url.partition(":")[0] + "\n")  # no more of it: it may hold a password

    def identify(self) -> str:
        """A name that no other state directory has; made on first use."""
        path = self.root / "id"
        if not path.exists():
            write_private(path, os.urandom(8).hex() + "\n")
        return path.read_text().strip()

    @property
    def token(self) -> Path:
        """The token that lets this user in."""
        return self.root / "token"

    @property
    def database(self) -> Path:
        """Everything that is remembered."""
        return self.root / "springtide.db"

    @property
    def elsewhere(self) -> Path:
        """There if the last server kept its records in another database; says of which kind."""
        return self.root / "database"

    @property
    def address(self) -> Path:
        """Where the running server listens, and its process id."""
        return self.root / "server.json"

    @property
    def config(self) -> Path:
        """The server's own settings, written by its owner."""
        return self.root / "server.yaml"

    @property
    def log(self) -> Path:
        """What a server in the background writes."""
        return self.root / "server.log"

    @property
    def code(self) -> Path:
        """Unpacked archives by hash."""
        return self.root / "code"

    @property
    def inputs(self) -> Path:
        """What was fetched for the inputs of jobs, by content."""
        return self.root / "inputs"

    @property
    def jobs(self) -> Path:
        """A folder per job."""
        return self.root / "jobs"

    @property
    def new_secrets(self) -> Path:
        """The secrets of jobs that are being stored, by job."""
        return self.root / "new-secrets"

    def job_folder(self, job_id: str) -> Path:
        """All that a job leaves on disk: logs, output, checkpoints."""
        return self.jobs / job_id

    def logs(self, job_id: str) -> Path:
        """The logs of a job's ranks, and its metrics."""
        return self.job_folder(job_id) / "logs"

    def output(self, job_id: str) -> Path:
        """`$SPRINGTIDE_OUTPUT` of a job."""
        return self.job_folder(job_id) / "output"

    def checkpoints(self, job_id: str) -> Path:
        """The checkpoints of a job, unless its file says otherwise."""
        return self.job_folder(job_id) / "checkpoints"

    def job_url(self, job_id: str, part: str) -> str | None:
        """Where a part of what a job leaves lies in object storage; None if there is none."""
        return None if self.storage is None else join(self.storage, "jobs", job_id, part)

    def scratch(self, job_id: str) -> Path:
        """The checkpoints and output of a probe, thrown away."""
        return self.job_folder(job_id) / "probe"

    def secrets_file(self, job_id: str) -> Path:
        """The values of a job's secrets while it lives."""
        return self.job_folder(job_id) / "secrets.json"

    def list_paths(self, job_id: str) -> JobPaths:
        """All paths of a job."""
        kept = self.logs(job_id), self.output(job_id), self.checkpoints(job_id)
        return JobPaths(self.code, *kept, self.scratch(job_id), self.secrets_file(job_id))


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
    with open(partial, "w", encoding="utf-8", opener=open_private) as file:
        file.write(text)
    partial.replace(path)


def write_secrets(state_dir: StateDir, job_id: str, values: Mapping[str, str]) -> None:
    """Keep the secrets of a job until it ends, in a folder that stays ours."""
    if not values:
        return
    with hold(state_dir.job_folder(job_id), make=0o700) as folder:
        take_back(folder, 0o700)  # the executor lets the job's user through when it starts
    write_private(state_dir.secrets_file(job_id), json.dumps(dict(values)))


def read_address(state_dir: StateDir) -> dict[str, Any] | None:
    """Where the server of this state directory said it listens; None if none did."""
    try:
        address: dict[str, Any] = json.loads(state_dir.address.read_text())
    except (OSError, ValueError):
        return None
    return address
