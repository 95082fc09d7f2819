"""The mappings inside a job file: checkpoints, retries, notices, sweeps; each key described, with an example."""

import re
import shlex
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from springtide.core.durations import is_instant, parse_instant, parse_span
from springtide.core.job_file_parts.shell_syntax import explain_shell_syntax
from springtide.core.job_file_parts.sweeps import MOST_SWEPT, MOST_WHOLE, SweepValue, count_cases
from springtide.core.locations import check_location
from springtide.core.sizes import parse_size
from springtide.errors import InputError, JobError

# What the platform itself tells a worker, or what would change whose code runs there.
RESERVED = ("SPRINGTIDE_", "LD_")
#: How a stored file is read: what it says was taken once, by the rules of that time.
STORED = {"stored": True}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DOTTED_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+){3}")
_ADDRESS = re.compile(r"[^@\s<>,;]+@[^@\s<>,;]+")

Word = Annotated[str, Field(max_length=4096)]
Span = Annotated[str, Field(max_length=64)]
Command = Word | Annotated[list[Word], Field(min_length=1, max_length=1000)]

#: What can be told of a job: an end of any kind is `ended`.
Notable = Literal[
    "admitted",
    "waitlisted",
    "offered",
    "declined",
    "started",
    "at_risk",
    "missed",
    "stalled",
    "inputs_changed",
    "paused",
    "succeeded",
    "failed",
    "cancelled",
    "ended",
]


class JobFileSection(BaseModel):
    """A mapping in the job file: frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Checkpoint(JobFileSection):
    """How often state is saved, how many saves are kept, where, and whether other code's may be resumed from."""

    every: Span = Field(default="5m", description="Time between two checkpoints.", examples=["10m"])
    keep: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=2, description="How many of the newest are kept.", examples=[3]
    )
    dir: Word | None = Field(
        default=None,
        description=(
            "An absolute folder or a URL (file://, s3://, gs://) for them, instead of a place of the job's own; "
            "a later job may go on from there."
        ),
        examples=["/data/checkpoints/digits", "s3://bucket/digits"],
    )
    allow_code_change: bool = Field(
        default=False, description="Whether to go on from a checkpoint in `dir` that other code wrote.", examples=[True]
    )

    @field_validator("every")
    @classmethod
    def check_every(cls, text: str) -> str:
        """A span of time."""
        check_span(text, "checkpoint.every", instants=False)
        return text

    @field_validator("dir")
    @classmethod
    def check_dir(cls, text: str | None) -> str | None:
        """An absolute path without `..`, or a URL."""
        try:
            return text if text is None else check_location(text)
        except InputError as error:
            raise ValueError(str(error)) from None

    @property
    def every_s(self) -> float:
        """Seconds between checkpoints."""
        return parse_span(self.every, "checkpoint.every")


class Retry(JobFileSection):
    """How often a crash of the user's code is retried."""

    max: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=3, description="Restarts after crashes of your code; faults of the platform do not count.", examples=[0]
    )


class Notice(JobFileSection):
    """Whom to tell what of the job: by exactly one of `webhook`, `email` and `command`."""

    on: Annotated[list[Notable], Field(min_length=1, max_length=20)] = Field(
        default=["ended", "paused", "at_risk", "missed"],
        description="What to tell; `ended` stands for every end.",
        examples=[["started", "ended"]],
    )
    webhook: Word | None = Field(
        default=None,
        description="An address to which a JSON document is posted.",
        examples=["https://example.org/hook"],
    )
    email: Annotated[str, Field(max_length=254)] | None = Field(
        default=None,
        description="Who gets a mail; the server's owner says by which SMTP server.",
        examples=["ann@example.org"],
    )
    command: Command | None = Field(
        default=None,
        description="A command on the server's machine, as the user that jobs run as; it reads the JSON on stdin.",
        examples=["/usr/local/bin/tell-team --channel training"],
    )

    @field_validator("webhook")
    @classmethod
    def check_webhook(cls, text: str | None, info: ValidationInfo) -> str | None:
        """An address of the web, of a host that there can be."""
        if text is None:
            return None
        if not is_web_address(text):
            raise ValueError(f"notify.webhook {text!r} is not an address; write https://host/path")
        if info.context != STORED and not has_host(text):
            host = urlsplit(text).hostname
            raise ValueError(f"notify.webhook {text!r}: there can be no host {host!r}; check its name or number")
        return text

    @field_validator("email")
    @classmethod
    def check_email(cls, text: str | None) -> str | None:
        """One address."""
        if text is not None and _ADDRESS.fullmatch(text) is None:
            raise ValueError(f"notify.email {text!r} is not one address; write ann@example.org")
        return text

    @field_validator("command")
    @classmethod
    def check_command(cls, value: str | list[str] | None, info: ValidationInfo) -> str | list[str] | None:
        """A command that splits into words and needs no shell."""
        if value is not None:
            split_command(value)
            refuse_shell_syntax(value, "command", info)
        return value

    @model_validator(mode="after")
    def check_one_way(self) -> Self:
        """Exactly one way."""
        if sum(way is not None for way in (self.webhook, self.email, self.command)) != 1:
            raise ValueError("each entry of notify needs exactly one of webhook, email and command")
        return self

    @property
    def words(self) -> tuple[str, ...]:
        """The command as words; empty where it tells in another way."""
        return () if self.command is None else split_command(self.command)


class Sweep(JobFileSection):
    """Many jobs of one file: `grid` for all combinations of values, or `cases` for a list of them."""

    grid: dict[str, Annotated[list[SweepValue], Field(min_length=1)]] | None = Field(
        default=None,
        description="Values by name; there is a job for every combination.",
        examples=[{"lr": [0.1, 0.01], "seed": [1, 2, 3]}],
    )
    cases: Annotated[list[dict[str, SweepValue]], Field(min_length=1)] | None = Field(
        default=None,
        description="A list of mappings from names to values; there is a job for each.",
        examples=[[{"lr": 0.1, "batch": 32}, {"lr": 0.2, "batch": 64}]],
    )
    promise: Literal["each", "whole"] = Field(
        default="each",
        description="With a deadline: whether each job is answered alone (`each`), or all are promised or none.",
        examples=["whole"],
    )

    @field_validator("grid", "cases", mode="before")
    @classmethod
    def refuse_switches(cls, value: Any) -> Any:
        """True and false must be quoted, because their spelling would be lost."""
        rows = value if isinstance(value, list) else [value]
        for name, item in ((name, item) for row in rows if isinstance(row, dict) for name, item in row.items()):
            if any(isinstance(one, bool) for one in (item if isinstance(item, list) else [item])):
                raise ValueError(f"sweep: {name} holds true or false; quote it, as in {name}: 'true'")
        return value

    @model_validator(mode="after")
    def check_cases(self) -> Self:
        """One of the two, with names that can be variables, and not too many jobs."""
        if (self.grid is None) == (self.cases is None):
            raise ValueError("sweep needs either grid or cases")
        if self.grid == {}:
            raise ValueError("sweep.grid is empty; name at least one value to change")
        for name in self.names:
            check_variable(name)
        count = count_cases(self.grid, self.cases)
        if count > MOST_SWEPT:
            raise ValueError(f"sweep makes {count} jobs; at most {MOST_SWEPT} are taken, so sweep over fewer values")
        if self.promise == "whole" and count > MOST_WHOLE:
            raise ValueError(
                f"sweep makes {count} jobs; at most {MOST_WHOLE} can be promised as a whole, or each alone"
            )
        self.check_difference()
        return self

    def check_difference(self) -> None:
        """Refuse jobs that would have no value of their own, or all those of another."""
        for name, values in (self.grid or {}).items():
            if twice := find_twice([str(value) for value in values]):
                raise ValueError(f"sweep.grid.{name} has {twice} twice; give each value once")
        if self.cases is not None and {} in self.cases:
            raise ValueError(f"sweep.cases has an empty case, number {self.cases.index({}) + 1}; give it a value")
        shown = [", ".join(f"{name}={case[name]}" for name in sorted(case)) for case in self.cases or ()]
        if twice := find_twice(shown):
            raise ValueError(f"sweep.cases has {twice} twice; give each case once, or tell them apart by a seed")

    @property
    def names(self) -> tuple[str, ...]:
        """The names that have values, in order."""
        return tuple(dict.fromkeys([*(self.grid or {}), *(name for case in self.cases or () for name in case)]))

    @property
    def common_names(self) -> tuple[str, ...]:
        """The names of which every job has a value."""
        return tuple(name for name in self.names if all(name in case for case in self.cases or ()))


def find_twice(texts: Sequence[str]) -> str | None:
    """The first text that is there more than once."""
    return next((text for number, text in enumerate(texts) if text in texts[:number]), None)


def check_span(text: str, what: str, instants: bool = True) -> None:
    """Refuse what is no span of time, nor (where they are allowed) an instant."""
    try:
        parse_instant(text, what) if instants and is_instant(text) else parse_span(text, what)
    except JobError as error:
        raise ValueError(str(error)) from None


def check_size(text: str, what: str) -> None:
    """Refuse what is no amount of memory."""
    try:
        parse_size(text, what)
    except JobError as error:
        raise ValueError(str(error)) from None


def check_variable(name: str) -> None:
    """Refuse what cannot be an environment variable, or is the platform's own."""
    if _VARIABLE.fullmatch(name) is None or len(name) > 200:
        raise ValueError(f"{name!r} is not the name of an environment variable")
    if name.startswith(RESERVED):
        raise ValueError(f"{name} is reserved; names that start with {' or '.join(RESERVED)} are set by the platform")


def split_command(value: str | list[str]) -> tuple[str, ...]:
    """The words of a command, none of them holding a NUL."""
    try:
        words = split_text(value) if isinstance(value, str) else tuple(value)
    except ValueError as error:
        raise ValueError(f"{value!r} cannot be split into words ({error}); write it as a list") from None
    if not words or not words[0]:
        raise ValueError("it is empty; write the command, as in: python train.py")
    if any("\0" in word for word in words):
        raise ValueError("a word holds a NUL character")
    return words


@lru_cache
def split_text(text: str) -> tuple[str, ...]:
    """The words of a text, as a shell would split it; asked several times of each command."""
    return tuple(shlex.split(text))


def refuse_shell_syntax(value: str | list[str], key: str, info: ValidationInfo) -> None:
    """Refuse a text that was written for a shell; words of a list are as the program is to get them."""
    if isinstance(value, str) and info.context != STORED and (wrong := explain_shell_syntax(value, key)):
        raise ValueError(wrong)


def is_absolute(text: str) -> bool:
    """Whether a text is an absolute path without `..`."""
    return text.startswith("/") and ".." not in PurePosixPath(text).parts and "\0" not in text


def is_web_address(text: str) -> bool:
    """Whether a text is an http or https address with a host, in letters that fit in one."""
    try:
        parts = urlsplit(text)
        is_named = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and is_named and text.isprintable() and " " not in text


def has_host(address: str) -> bool:
    """Whether there can be a host of an address's name or number, as those see it who would connect to it."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    try:
        if "[" in parts.netloc:
            IPv6Address(host)
        elif _DOTTED_NUMBERS.fullmatch(host):
            IPv4Address(host)
        elif not host.isascii():
            import idna  # few names have such letters

            idna.encode(host.lower())
    except ValueError:
        return False
    return True
