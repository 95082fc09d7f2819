"""Holds the store at which the processes of one job meet. Run by the fork server, as a script, for each start of a job.

It tells its address to the agent over the job's control socket and ends with that connection, hence with the agent.
"""

import json
import os
import socket

from springtide.training.group.groups import host_store


def main() -> None:
    """Serve until the agent hangs up."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(os.environ["SPRINGTIDE_CONTROL"].removeprefix("unix:"))
    _store, address = host_store(address=os.environ.get("SPRINGTIDE_ADDRESS", "127.0.0.1"))
    sock.sendall(json.dumps({"event": "store", "process": "store", "address": address}).encode() + b"\n")
    while sock.recv(1 << 12):
        pass


if __name__ == "__main__":
    main()
