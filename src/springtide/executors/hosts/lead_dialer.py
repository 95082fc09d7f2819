"""The way to a lead, of a host or of a server on another machine: dial, and prove that both know the secret. Blocking.

A host also sees whether it has the lead's home before it.
"""

import contextlib
import hmac
import json
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from springtide import __version__
from springtide.errors import ExecutorError
from springtide.executors.hosts.host_messages import (
    Admission,
    Challenge,
    Introduction,
    Rejection,
    ServerIntroduction,
    ToHost,
    ToLead,
    Welcome,
    prove,
    read_order,
    write,
)
from springtide.executors.hosts.lead_address import LeadAddress


class RefusedError(ExecutorError):
    """The lead does not take this host, or this host cannot serve it: trying again cannot help."""


@dataclass(frozen=True, slots=True)
class LeadConnection:
    """A connection to a lead on which both have proved themselves."""

    sock: socket.socket
    #: Whether this host sees the lead's home.
    sees_home: bool


@dataclass(frozen=True, slots=True)
class Meeting:
    """A connection to a lead that has asked who we are."""

    sock: socket.socket
    #: When both must know each other.
    until_s: float
    #: What the lead, and what we, have to be told back.
    challenge: str
    nonce: str

    def introduce(self, who: Introduction | ServerIntroduction) -> ToHost:
        """Say who we are; returns the lead's answer."""
        send(self.sock, who)
        return receive(self.sock, self.until_s)


@contextlib.contextmanager
def meeting(lead: LeadAddress, patience_s: float) -> Iterator[Meeting]:
    """Meet whoever listens at an address; hung up on if the block fails."""
    until_s = time.monotonic() + patience_s
    sock = socket.create_connection((lead.host, lead.port), timeout=patience_s)
    try:
        challenge = receive(sock, until_s)
        if not isinstance(challenge, Challenge):
            raise OSError("whoever listens there is no lead")
        yield Meeting(sock, until_s, challenge.nonce, secrets.token_hex(16))
    except BaseException:
        sock.close()
        raise


def dial(lead: LeadAddress, host: str, patience_s: float) -> LeadConnection:
    """A connection to the lead; OSError if that fails, RefusedError if it is no use.

    Both prove themselves; then the host looks for the lead's witness, to know whether it sees its home.
    """
    with meeting(lead, patience_s) as met:
        proof = prove(lead.token, "host", met.challenge, met.nonce, host)
        answer = met.introduce(Introduction("introduction", host, met.nonce, proof, __version__))
        if isinstance(answer, Rejection) and not answer.again:
            raise RefusedError(answer.reason)
        if not isinstance(answer, Welcome):
            raise OSError(answer.reason if isinstance(answer, Rejection) else "the lead does not welcome this host")
        if not hmac.compare_digest(answer.proof, prove(lead.token, "lead", met.nonce, met.challenge)):
            raise RefusedError("whoever listens there does not know the token of this cluster")
        problem = check_witness(Path(answer.witness), answer.content, host)
        if problem and not answer.storage:
            send(met.sock, Rejection("rejection", problem))
            raise RefusedError(problem)
        met.sock.settimeout(None)
    return LeadConnection(met.sock, not problem)


def dial_as_server(lead: LeadAddress, key: str, patience_s: float) -> socket.socket:
    """A socket on which a lead answers as to a server beside it; OSError if nobody there is the lead of this home."""
    with meeting(lead, patience_s) as met:
        met.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        proof = prove(key, "server", met.challenge, met.nonce)
        answer = met.introduce(ServerIntroduction("server", met.nonce, proof))
        if not isinstance(answer, Admission):
            raise OSError(answer.reason if isinstance(answer, Rejection) else "the lead does not let this server in")
        if not hmac.compare_digest(answer.proof, prove(key, "lead", met.nonce, met.challenge)):
            raise OSError("whoever listens there does not know the key of this home")
    return met.sock


def check_witness(path: Path, content: str, host: str) -> str:
    """What is wrong with this host's storage; empty if it is the lead's."""
    try:
        found = path.read_text()
    except OSError as error:
        found = ""
        why = error.strerror
    else:
        why = "it is another file there"
    if found == content:
        return ""
    return (
        f"host {host} does not see the lead's {path} ({why}): code, checkpoints and results would lie elsewhere; "
        "put the server's home on storage that all hosts share at the same path, or start it with --storage URL"
    )


def send(sock: socket.socket, message: ToLead) -> None:
    """Send a message."""
    sock.sendall(json.dumps(write(message)).encode() + b"\n")


def receive(sock: socket.socket, until_s: float) -> ToHost:
    """The next message, and not a byte more; OSError if there is none by then, however slowly it comes."""
    text = b""
    while not text.endswith(b"\n"):
        if (left_s := until_s - time.monotonic()) <= 0:
            raise TimeoutError("the lead takes too long to say who it is")
        sock.settimeout(left_s)
        byte = sock.recv(1)
        if not byte or len(text) > 1 << 16:
            raise ConnectionResetError("the lead hung up")
        text += byte
    try:
        return read_order(json.loads(text))
    except ValueError as error:
        raise ConnectionResetError(f"the lead says what cannot be read: {error}") from None
