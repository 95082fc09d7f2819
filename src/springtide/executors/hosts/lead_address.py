"""`hosts.json` in the home of a cluster: where its lead listens, and the token by which lead and hosts know each other.

The home lies on storage that all hosts share; only its owner can read the file. A host that does not see the home has
a copy in its state folder, which whoever started it there has put there. `hosts.key` leaves the home never: by it a
server on another machine, which may order what a host may not, shows that it is one of this home.
"""

import contextlib
import json
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from springtide.errors import ExecutorError
from springtide.executors.local.paths import open_private, replace_file

HOSTS = "hosts.json"
#: A file that a lead writes when it starts; a host that reads the same has the same storage.
WITNESS = "hosts.witness"
KEY = "hosts.key"


@dataclass(frozen=True, slots=True)
class LeadAddress:
    """Where a lead listens, and the cluster's token."""

    host: str
    port: int
    token: str


def find_lead_file(home: Path, state_dir: Path | None = None) -> Path:
    """The file in the home; or in a host's own folder, where it was put there."""
    return state_dir / HOSTS if state_dir is not None and (state_dir / HOSTS).exists() else home / HOSTS


def read_lead(home: Path, state_dir: Path | None = None) -> LeadAddress:
    """What the file says; an error that names the remedy if there is none."""
    try:
        data = json.loads(find_lead_file(home, state_dir).read_text())
        return LeadAddress(str(data["host"]), int(data["port"]), str(data["token"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExecutorError(
            f"{home / HOSTS} cannot be read on {socket.gethostname()} ({error!r}); every host must see the server's "
            "home at the same path: put it on storage that all hosts share, and name it in SPRINGTIDE_HOME; or start "
            "the server with --storage URL"
        ) from None


def is_replaced(lead: LeadAddress, state_dir: Path) -> bool:
    """Whether a host that does not see the home has been told of another lead since.

    The file in a home is not looked at: it lies on storage that may not answer, and who must go on beating would wait.
    """
    if not (state_dir / HOSTS).exists():
        return False
    with contextlib.suppress(ExecutorError):
        return read_lead(state_dir, state_dir) != lead
    return False


def listen_for_hosts(home: Path, host: str) -> tuple[socket.socket, LeadAddress]:
    """A socket at an address of this machine: at the port of the lead before us if that is free, else at another."""
    try:
        before = read_lead(home)
    except ExecutorError:
        before = LeadAddress(host, 0, secrets.token_hex(32))
    try:
        listener = listen_at(host, before.port)
    except OSError:
        listener = listen_at(host, 0)
    listener.setblocking(False)
    lead = LeadAddress(host, listener.getsockname()[1], before.token)
    write_lead(home, lead)
    return listener, lead


def read_key(home: Path) -> str:
    """The key of a home's servers; OSError if none was made."""
    return (home / KEY).read_text()


def find_key(home: Path) -> str:
    """The same, made if there is none."""
    with contextlib.suppress(OSError):
        if key := read_key(home):
            return key
    with open(home / KEY, "w", opener=open_private) as file:
        file.write(key := secrets.token_hex(32))
    return key


def write_lead(folder: Path, lead: LeadAddress) -> None:
    """Write the file, for its owner's eyes only."""
    replace_file(folder / HOSTS, json.dumps(asdict(lead)).encode())


def listen_at(host: str, port: int) -> socket.socket:
    """A listening socket; no other may have the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        if port:
            raise
        raise ExecutorError(
            f"the lead cannot listen at {host} ({error.strerror}); it must be an address of this machine"
        ) from None
