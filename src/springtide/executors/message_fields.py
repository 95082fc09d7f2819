"""The fields of messages between processes, each checked where a message is read: numbers, names, text of others.

Numbers must be such as can be kept, and text such as can be written as UTF-8. What is only shown to people is made
plain instead of refused. Used by everything that speaks: executors, agents, workers, hosts.
"""

from typing import Annotated, Any, TypeAlias

from annotated_types import Ge, Le
from pydantic import AfterValidator, BeforeValidator, Field

from springtide.core.limits import MOST_DEVICES, MOST_INTEGER, MOST_STEPS
from springtide.core.plain_text import is_encodable, make_plain

NAME_CHARACTERS = 200


def check_encodable(text: str) -> str:
    """Refuse a text that could not be stored."""
    if not is_encodable(text):
        raise ValueError(f"the text {make_plain(text, 80)!r} cannot be written as UTF-8")
    return text


def write_words(value: Any) -> Any:
    """A script may give any object as its words; what it prints as is what was meant."""
    return value if value is None or isinstance(value, str) else str(value)


def shorten_name(name: str) -> str:
    """A name made plain, and cut where it is too long."""
    return make_plain(name, NAME_CHARACTERS)


Number: TypeAlias = Annotated[int, Field(strict=True), Ge(0), Le(MOST_INTEGER)]
StepCount: TypeAlias = Annotated[int, Field(strict=True), Ge(0), Le(MOST_STEPS)]
WorkerCount: TypeAlias = Annotated[int, Field(strict=True), Ge(1), Le(MOST_DEVICES)]
ExitCode: TypeAlias = Annotated[int, Field(strict=True), Ge(-MOST_INTEGER), Le(MOST_INTEGER)]
Seconds: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False), Ge(0)]
#: How many times longer something takes.
Slowdown: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False), Ge(1), Le(10**6)]
#: Not a number and infinity are values of a loss like others.
MetricValue: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=True)]

#: Text that means something to us; refused if it cannot be kept.
Text: TypeAlias = Annotated[str, AfterValidator(check_encodable)]
#: Text that means something to people; made plain.
PlainText: TypeAlias = Annotated[str, BeforeValidator(write_words), AfterValidator(make_plain)]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=NAME_CHARACTERS), AfterValidator(check_encodable)]
#: Of a host: what a file, an address or a node may be called, so that devices are `HOST/DEVICE`.
HostName: TypeAlias = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
MetricName: TypeAlias = Annotated[str, AfterValidator(shorten_name)]
Digest: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Address: TypeAlias = Annotated[str, Field(max_length=250, pattern=r"^[A-Za-z0-9_.:-]+:[0-9]{1,5}$")]
Variables: TypeAlias = dict[Text, Text]
