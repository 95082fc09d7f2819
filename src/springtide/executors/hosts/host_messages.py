"""What a lead and its hosts say to each other, each message read once and checked. Pure.

A host dials the lead; each proves with the cluster's token that it knows it, without sending it. Then the lead orders
processes of starts, and the host tells what becomes of them; both send beats.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from springtide.executors.message_fields import (
    Digest,
    ExitCode,
    HostName,
    Name,
    Number,
    PlainText,
    Seconds,
    Slowdown,
    Text,
    Variables,
)
from springtide.executors.protocol import JobSpec


def prove(token: str, who: str, *parts: str) -> str:
    """What only one who knows the token can say of these parts."""
    return hmac.new(token.encode(), "\n".join((who, *parts)).encode(), hashlib.sha256).hexdigest()


# Meeting.


@dataclass(frozen=True, slots=True)
class Challenge:
    """The lead's first word."""

    say: Literal["challenge"]
    nonce: Name


@dataclass(frozen=True, slots=True)
class Introduction:
    """A host says who it is, and proves that it may."""

    say: Literal["introduction"]
    host: HostName
    nonce: Name
    proof: Name
    version: Name


@dataclass(frozen=True, slots=True)
class ServerIntroduction:
    """Whoever dials is no host but a server of this home, on another machine, and proves it."""

    say: Literal["server"]
    nonce: Name
    proof: Name


@dataclass(frozen=True, slots=True)
class Admission:
    """The lead proves itself to a server; from here on the connection is one of the agent's clients."""

    say: Literal["admission"]
    proof: Name


@dataclass(frozen=True, slots=True)
class Welcome:
    """The lead proves itself, and says by what file a host knows that it sees the lead's home."""

    say: Literal["welcome"]
    proof: Name
    witness: Text
    content: Text
    #: Object storage that holds what jobs leave, so that a host need not see the home; empty: there is none.
    storage: Text = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The lead does not take the host, or the host cannot serve; final unless `again`."""

    say: Literal["rejection"]
    reason: PlainText
    again: bool = False


@dataclass(frozen=True, slots=True)
class DeviceOffer:
    """A device of a host, by its name there."""

    name: Name
    type: Name
    uuid: Text = ""
    memory_gib: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The host serves, with these devices, and is reached at this address."""

    say: Literal["ready"]
    address: Name
    devices: tuple[DeviceOffer, ...]
    #: False: code, secrets and receipts must be sent, because it has only its own disk.
    sees_home: bool = True


@dataclass(frozen=True, slots=True)
class Beat:
    """I am here."""

    say: Literal["beat"]
    #: When it was sent, on the counter of the machine that sends it.
    stamp_s: Seconds
    #: The newest such stamp that came from the other side.
    echo_s: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """The host is about to go: its processes have so long to leave."""

    say: Literal["leaving"]
    grace_s: Seconds
    reason: PlainText


@dataclass(frozen=True, slots=True)
class HostLoaded:
    """What others take of the host's processors, as in `MachineLoaded`."""

    say: Literal["loaded"]
    cores: Seconds
    outside: Seconds
    slowdown: Slowdown


# The lead's orders; `start` names one start of one job.


@dataclass(frozen=True, slots=True)
class OpenStart:
    """Be ready for processes of a start."""

    say: Literal["open"]
    start: Name
    job: Name
    spec: JobSpec
    #: The job's secrets; they are kept in memory only.
    private: Variables
    #: The digest of the code that the host must ask for; empty: it sees `spec.folder`.
    code: Text = ""
    #: The start of the job before this one, whose copies in the host's memory it may go on from; empty: none.
    before: Text = ""
    #: The last step of that start of which the lead heard.
    heard: int = 0


@dataclass(frozen=True, slots=True)
class SpawnWorker:
    """Start a process on a device of the host."""

    say: Literal["spawn"]
    start: Name
    process: Name
    device: Name
    variables: Variables
    visible: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class PassCommand:
    """Send a command to a process."""

    say: Literal["write"]
    start: Name
    process: Name
    message: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SendSignal:
    """Send a signal to a process."""

    say: Literal["signal"]
    start: Name
    process: Name
    number: Number


@dataclass(frozen=True, slots=True)
class EndStart:
    """Kill all processes of a start (`kill`); let go of it when they are gone (`close`)."""

    say: Literal["kill", "close"]
    start: Name


@dataclass(frozen=True, slots=True)
class CodePart:
    """The next piece of a code archive, in base 64; empty behind its end."""

    say: Literal["code"]
    digest: Digest
    data: str
    #: Why there is none, if there is none.
    failure: PlainText = ""


# What a host tells of its guests, and asks for.


@dataclass(frozen=True, slots=True)
class WantCode:
    """Send the code of this digest from this byte on."""

    say: Literal["want"]
    digest: Digest
    offset: Number


@dataclass(frozen=True, slots=True)
class CheckpointReceipt:
    """A process has saved a checkpoint to object storage, and this is its receipt."""

    say: Literal["saved"]
    start: Name
    name: Name
    manifest: Text


@dataclass(frozen=True, slots=True)
class Forked:
    """A process runs."""

    say: Literal["forked"]
    start: Name
    process: Name
    pid: Number


@dataclass(frozen=True, slots=True)
class ListeningChanged:
    """A process has called `springtide.init`, or has hung up."""

    say: Literal["line"]
    start: Name
    process: Name
    listening: bool


@dataclass(frozen=True, slots=True)
class Said:
    """What a process says to its agent; read by `worker_messages`."""

    say: Literal["said"]
    start: Name
    process: Name
    message: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Nonsense:
    """A process said what is no message."""

    say: Literal["nonsense"]
    start: Name
    process: Name
    text: PlainText


@dataclass(frozen=True, slots=True)
class Printed:
    """What a process prints, in base 64."""

    say: Literal["printed"]
    start: Name
    process: Name
    data: str

    @property
    def content(self) -> bytes:
        """The bytes."""
        return decode(self.data)


@dataclass(frozen=True, slots=True)
class Exited:
    """A process has ended."""

    say: Literal["exited"]
    start: Name
    process: Name
    code: ExitCode
    #: Whether it was ended because its job passed its memory.
    starved: bool = False


@dataclass(frozen=True, slots=True)
class Sampled:
    """Whether each process is stopped, and the processor time it has used."""

    say: Literal["sampled"]
    start: Name
    samples: dict[Name, tuple[bool, Seconds]]


@dataclass(frozen=True, slots=True)
class StartState:
    """What of a start is known on the host: its torch, why no process can be started, whether all of it is gone."""

    say: Literal["state"]
    start: Name
    torch_version: Text
    failure: PlainText = ""
    gone: bool = False
    #: Whether that is the host's own trouble, so that another host may run the job.
    is_hosts: bool = False


ToHost: TypeAlias = (
    Challenge
    | Admission
    | Welcome
    | Rejection
    | Beat
    | OpenStart
    | SpawnWorker
    | PassCommand
    | SendSignal
    | EndStart
    | CodePart
)
ToLead: TypeAlias = (
    Introduction
    | ServerIntroduction
    | Rejection
    | Ready
    | Beat
    | Leaving
    | HostLoaded
    | Forked
    | ListeningChanged
    | Said
    | Nonsense
    | Printed
    | Exited
    | Sampled
    | StartState
    | WantCode
    | CheckpointReceipt
)
_TO_HOST: TypeAdapter[ToHost] = TypeAdapter(Annotated[ToHost, Field(discriminator="say")])
_TO_LEAD: TypeAdapter[ToLead] = TypeAdapter(Annotated[ToLead, Field(discriminator="say")])


def read_order(data: Any) -> ToHost:
    """What the lead says, in JSON data; a ValueError if it is none of ours."""
    return _TO_HOST.validate_python(data)


def read_report(data: Any) -> ToLead:
    """What a host says, in JSON data; a ValueError if it is none of ours."""
    return _TO_LEAD.validate_python(data)


def write(message: ToHost | ToLead) -> dict[str, Any]:
    """A message as JSON data."""
    return asdict(message)


def encode(data: bytes) -> str:
    """Bytes in base 64."""
    return base64.b64encode(data).decode()


def decode(text: str) -> bytes:
    """The bytes in base 64; a ValueError if it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("data that is not base 64") from None


@dataclass(frozen=True, slots=True)
class BeatTimes:
    """How often each side says that it is there, and what silence means.

    A lead that has not heard a host for `lost_s` gives it up. A host ends its guests `fence_s` after it sent the last
    beat that it knows the lead has heard; only `clear_s` after it last heard the host does the lead count them as
    gone. So nothing runs twice.
    """

    beat_s: float = 0.5
    lost_s: float = 2.0
    fence_s: float = 4.0
    clear_s: float = 5.0
    #: How long the two may take to know each other.
    meet_s: float = 10.0
    #: How often samples of processes are sent.
    sample_s: float = 1.0
