"""The agent's files in the state folder: their names, the lock, and a short folder for sockets and pipes."""

import contextlib
import fcntl
import io
import json
import os
import shutil
from pathlib import Path
from typing import IO

from springtide import __version__

SOCKET = "agent.sock"
LOCK = "agent.lock"
JOURNAL = "agent.journal"
LOG = "agent.log"
AGENT_NOTES = "agent.json"
#: Longest path of the folder for sockets, so that theirs stay within the kernel's 108 characters.
FOLDER_LIMIT = 80


def make_mark(state_dir: Path) -> str:
    """The name by which processes of this state folder's agents know each other."""
    import hashlib  # here: a command that only asks a server has no use for it

    return hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()[:16]


def make_runtime_folder(state_dir: Path) -> Path:
    """A new folder for sockets and pipes with a short path; that of an agent before us is removed.

    As root it is not in the state folder, which no other user may enter: jobs may run under other users.
    """
    import tempfile

    noted = state_dir / AGENT_NOTES
    with contextlib.suppress(OSError, ValueError, KeyError):
        shutil.rmtree(json.loads(noted.read_text())["folder"], ignore_errors=True)
    near = state_dir.resolve() / "run"
    is_near = len(os.fsencode(near)) <= FOLDER_LIMIT and os.geteuid() != 0
    if is_near:
        near.mkdir(mode=0o711, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="springtide-", dir=near if is_near else None))
    folder.chmod(0o711)
    noted.write_text(json.dumps({"pid": os.getpid(), "folder": str(folder), "version": __version__}))
    return folder


def open_private(path: str, flags: int) -> int:
    """An opener for files that only their owner can read."""
    return os.open(path, flags, 0o600)


def replace_file(path: Path, content: bytes) -> None:
    """Write a private file, whole or not at all, also where the machine loses its power meanwhile."""
    replace_to_append(path, content).close()


def replace_to_append(path: Path, content: bytes) -> io.FileIO:
    """The same; returns the file, to go on behind its content."""
    building = path.with_name(f"{path.name}.new")
    file = io.FileIO(building, "w", opener=open_private)
    try:
        write_whole(file, content)
        os.fsync(file.fileno())
        building.replace(path)
    except BaseException:
        file.close()
        raise
    sync_folder(path.parent)
    return file


def write_whole(file: io.FileIO, content: bytes) -> None:
    """Write all of it; a disk that fills up takes a part, and refuses the rest."""
    while content:
        content = content[file.write(content) :]


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk, where its file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def keep_from_cleaners(folder: Path) -> None:
    """Have systemd-tmpfiles leave a folder and all below it alone until this process ends, however old it gets.

    It asks by a lock on the folder. Without this the lock and the code of what runs for weeks go from a /tmp.
    """
    with contextlib.suppress(OSError):
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # open until the end
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)


def try_lock(path: Path) -> IO[str] | None:
    """Hold a lock file for this process alone, until it is closed; None if another one has it."""
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
