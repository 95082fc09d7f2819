"""The connection of a command to the server: found, or started in the background where a command needs one."""

import os
from typing import TYPE_CHECKING

from springtide.cli.outputs import tell
from springtide.errors import InputError

if TYPE_CHECKING:
    from springtide.client.client import Client


def connect() -> "Client":
    """A client of the running server; without one the command ends with code 4."""
    from springtide.client.client import Client

    return Client()


def connect_or_start() -> "Client":
    """A client of the server that is named or runs here, or else of one that is started now, in the background."""
    from springtide.client.client import Client
    from springtide.control.background import is_answering, start_background
    from springtide.control.storage.state_dir import find_home, read_address
    from springtide.executors.local.daemon import is_alive

    if os.environ.get("SPRINGTIDE_URL"):
        return Client()
    home = find_home()
    address = read_address(home)
    if address is not None and is_alive(int(address["pid"])):
        if is_answering(address["url"]):
            return Client()
    else:
        home.address.unlink(missing_ok=True)  # of a server that was killed
    url = start_background(home)
    tell(f"started a server at {url} (state in {home.root}); stop it with: springtide stop")
    return Client()


def has_server() -> bool:
    """Whether a server is named, or that of this state directory runs: if it does not let us in, that is an error."""
    from springtide.control.storage.state_dir import find_home, read_address
    from springtide.executors.local.daemon import is_alive

    address = read_address(find_home())
    return bool(os.environ.get("SPRINGTIDE_URL")) or (address is not None and is_alive(int(address["pid"])))


def choose_job(client: "Client", ref: str | None) -> str:
    """The job a command is about: the one named, else the newest."""
    if ref is not None:
        return ref
    newest = client.jobs(all=True, limit=1)
    if not newest:
        raise InputError("there are no jobs yet; submit one with: springtide submit job.yaml")
    return newest[0].id


def complete_job(incomplete: str) -> list[str]:
    """The names of jobs that a word may become, for a shell that completes it; without a server there are none."""
    from springtide.errors import SpringtideError

    try:
        with connect() as client:
            names = dict.fromkeys(job.name for job in client.jobs(all=True))
    except SpringtideError:
        return []
    return [name for name in names if name.startswith(incomplete)]
