"""A PostgreSQL of one's own on a socket in a temporary folder, thrown away at the end."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root


def find_lack() -> str:
    """What is missing to run one here; empty if nothing is."""
    if importlib.util.find_spec("psycopg") is None:
        return "the extra postgres is not installed"
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        return "PostgreSQL's initdb and pg_ctl are not on the PATH"
    return ""


def run_tool(name: str, *arguments: str) -> None:
    """Run a program of PostgreSQL as someone it accepts."""
    command = [shutil.which(name) or name, *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=120, user=USER, cwd="/")


@contextmanager
def run_postgres() -> Iterator[str]:
    """The address of an empty database."""
    folder = Path(tempfile.mkdtemp(prefix="springtide-pg-"))
    if USER is not None:
        shutil.chown(folder, USER)
    data = str(folder / "data")
    try:
        run_tool("initdb", "-D", data, "-A", "trust", "-U", "springtide", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        run_tool("pg_ctl", "-D", data, "-o", options, "-l", str(folder / "log"), "-w", "start")
        try:
            yield f"postgresql://springtide@/postgres?host={folder}"
        finally:
            run_tool("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
