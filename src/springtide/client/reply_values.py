"""What a reply is: a frozen dataclass that reads itself from a document.

The methods of all replies are written once here. `dataclass` would compile six for each kind, and a command that
asks one thing would wait for those of thirty kinds: 45 ms of a start, 3 ms without.
"""

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from datetime import datetime
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, NoReturn, Self, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from springtide.core.shared_types import Document
from springtide.errors import ServerError

Kind = TypeVar("Kind")
PLAIN = frozenset({str, int, float, bool, type(None)})  # what JSON has itself


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def reply(kind: type[Kind]) -> type[Kind]:
    """A kind of reply from its fields; what it can do it has from `Reply`."""
    return dataclass(slots=True, init=False, repr=False, eq=False)(kind)


@reply
class Reply:
    """A document, and as attributes the fields of it that are known."""

    document: Document = field(repr=False, compare=False)

    def __init__(self, *given: Any, **named: Any) -> None:
        places = fields(self)
        if len(given) > len(places):
            raise TypeError(f"{type(self).__name__} has {len(places)} fields, {len(given)} values were given")
        values = dict(zip((one.name for one in places), given, strict=False))
        if twice := values.keys() & named.keys():
            raise TypeError(f"{type(self).__name__} got {min(twice)!r} twice")
        values |= named
        for one in places:
            value = values.pop(one.name) if one.name in values else find_default(one)
            if value is MISSING:
                raise TypeError(f"{type(self).__name__} needs {one.name!r}")
            object.__setattr__(self, one.name, value)
        if values:
            raise TypeError(f"{type(self).__name__} has no field {min(values)!r}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __repr__(self) -> str:
        shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
        return f"{type(self).__qualname__}({shown})"

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[Any, ...]:
        return tuple(getattr(self, one.name) for one in fields(self) if one.compare)

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple(getattr(self, one.name) for one in fields(self))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for one, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, one.name, value)

    @classmethod
    def read(cls, document: Document) -> Self:
        """The value of a document; a field that is missing, or a state that is unknown, is the server's fault."""
        places = read_places(cls)  # type: ignore[arg-type]  # mypy: type[Self] is not Hashable
        return cls(document, **{place.name: place.find_value(document) for place in places})


def find_default(field: "Field[Any]") -> Any:
    """What a field has where nothing is said of it, or MISSING."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReplyField:
    """Where a field of a reply is in its document, and what it is to become."""

    name: str
    key: str
    wanted: Any
    is_plain: bool
    field: "Field[Any]"

    def find_value(self, document: Document) -> Any:
        """The value of the field; its default where the document has none."""
        if self.key in document:
            value = document[self.key]
            return value if self.is_plain else convert(value, self.wanted)
        if (default := find_default(self.field)) is not MISSING:
            return default
        raise ServerError(
            f"the server's reply has no {self.key!r}; is it a springtide server of this version or a later one?"
        )


@cache
def read_places(reply: Any) -> tuple[ReplyField, ...]:
    """The fields of a kind of reply, without the document itself."""
    types = get_type_hints(reply)
    return tuple(
        ReplyField(one.name, one.metadata.get("key", one.name), types[one.name], is_plain(types[one.name]), one)
        for one in fields(reply)
        if one.name != "document"
    )


def is_plain(wanted: Any) -> bool:
    """Whether a value of JSON is of this type as it is."""
    kinds = get_args(wanted) if get_origin(wanted) is UnionType else (wanted,)
    return PLAIN.issuperset(kinds)


def convert(value: Any, wanted: Any) -> Any:
    """A value of a JSON document as the type that a field wants."""
    if get_origin(wanted) is UnionType:
        first, other = get_args(wanted)
        if value is None or (other is str and value not in set(first)):
            return value
        return convert(value, first)
    if get_origin(wanted) is tuple:
        if get_args(wanted)[0] in PLAIN:
            return tuple(value)
        return tuple(convert(item, get_args(wanted)[0]) for item in value)
    if wanted == dict[str, float]:
        return {name: float(number) for name, number in value.items()}  # "nan" and "inf" come as texts
    if wanted is datetime:
        return datetime.fromisoformat(value)
    if isinstance(wanted, type) and issubclass(wanted, Reply):
        return wanted.read(value)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return find_member(wanted, value)
    return value


def find_member(choices: type[Enum], value: str) -> Enum:
    """The member of an enum that a document names."""
    try:
        return choices(value)
    except ValueError:
        known = ", ".join(str(one) for one in choices)
        raise ServerError(f"the server says {value!r}, this version knows {known}; install the server's") from None
