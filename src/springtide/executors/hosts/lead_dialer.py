"""The way to a lead, of a host or of a server on another machine: dial, and prove that both know the secret. Blocking.

A host also sees whether it has the lead's home before it.
"""

import hmac
import json
import secrets
import socket
import time
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
class LeadLine:
    """A line to a lead on which both have proved themselves."""

    line: socket.socket
    #: Whether this host sees the lead's home.
    sees_home: bool


def dial(lead: LeadAddress, host: str, patience_s: float) -> LeadLine:
    """A line to the lead; OSError if that fails, RefusedError if it is no use."""
    until_s = time.monotonic() + patience_s
    line = socket.create_connection((lead.host, lead.port), timeout=patience_s)
    try:
        sees_home = meet(line, lead, host, until_s)
    except BaseException:
        line.close()
        raise
    line.settimeout(None)
    return LeadLine(line, sees_home)


def meet(line: socket.socket, lead: LeadAddress, host: str, until_s: float) -> bool:
    """Prove ourselves and have the lead prove itself; then look for its witness, and say whether it is seen."""
    challenge = receive(line, until_s)
    if not isinstance(challenge, Challenge):
        raise OSError("whoever listens there is no lead")
    nonce = secrets.token_hex(16)
    proof = prove(lead.token, "host", challenge.nonce, nonce, host)
    send(line, Introduction("introduction", host, nonce, proof, __version__))
    answer = receive(line, until_s)
    if isinstance(answer, Rejection) and not answer.again:
        raise RefusedError(answer.reason)
    if not isinstance(answer, Welcome):
        raise OSError(answer.reason if isinstance(answer, Rejection) else "the lead does not welcome this host")
    if not hmac.compare_digest(answer.proof, prove(lead.token, "lead", nonce, challenge.nonce)):
        raise RefusedError("whoever listens there does not know the token of this cluster")
    problem = check_witness(Path(answer.witness), answer.content, host)
    if problem and not answer.storage:
        send(line, Rejection("rejection", problem))
        raise RefusedError(problem)
    return not problem


def dial_as_server(lead: LeadAddress, key: str, patience_s: float) -> socket.socket:
    """A line on which a lead answers as to a server beside it; OSError if nobody there is the lead of this home."""
    until_s = time.monotonic() + patience_s
    line = socket.create_connection((lead.host, lead.port), timeout=patience_s)
    try:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        challenge = receive(line, until_s)
        if not isinstance(challenge, Challenge):
            raise OSError("whoever listens there is no lead")
        nonce = secrets.token_hex(16)
        send(line, ServerIntroduction("server", nonce, prove(key, "server", challenge.nonce, nonce)))
        answer = receive(line, until_s)
        if not isinstance(answer, Admission):
            raise OSError(answer.reason if isinstance(answer, Rejection) else "the lead does not let this server in")
        if not hmac.compare_digest(answer.proof, prove(key, "lead", nonce, challenge.nonce)):
            raise OSError("whoever listens there does not know the key of this home")
    except BaseException:
        line.close()
        raise
    return line


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


def send(line: socket.socket, message: ToLead) -> None:
    """Send a message."""
    line.sendall(json.dumps(write(message)).encode() + b"\n")


def receive(line: socket.socket, until_s: float) -> ToHost:
    """The next message, and not a byte more; OSError if there is none by then, however slowly it comes."""
    text = b""
    while not text.endswith(b"\n"):
        if (left_s := until_s - time.monotonic()) <= 0:
            raise TimeoutError("the lead takes too long to say who it is")
        line.settimeout(left_s)
        byte = line.recv(1)
        if not byte or len(text) > 1 << 16:
            raise ConnectionResetError("the lead hung up")
        text += byte
    try:
        return read_order(json.loads(text))
    except ValueError as error:
        raise ConnectionResetError(f"the lead says what cannot be read: {error}") from None
