"""What every connection to a PostgreSQL is opened with: who asks, and how long a network may be silent."""

from collections.abc import Mapping
from types import MappingProxyType

from sqlalchemy.engine import URL

#: Without them a connection whose other end was cut off without a word is noticed after a quarter of an hour: as soon
#: as something was sent and is not confirmed for so long, or an idle end does not answer.
SILENCE = {
    "tcp_user_timeout": 10_000,  # milliseconds
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
#: What the session is opened with that renews a lease: it has to be noticed, and another one opened, within the lease.
SHORT_SILENCE = {
    "tcp_user_timeout": 2_000,
    "keepalives": 1,
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 2,
}


def choose_arguments(
    address: URL, name: str = "", usual: Mapping[str, str | int] = MappingProxyType(SILENCE)
) -> dict[str, str | int]:
    """The driver's arguments for an address; what its owner has written into it holds."""
    own: dict[str, str | int] = {"application_name": name} if name else {}
    return {**{key: value for key, value in usual.items() if key not in address.query}, **own}
