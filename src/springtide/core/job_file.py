"""The job file: every key a user may write, checked once, with errors that name the key and the remedy.

The same model checks files at the client and bodies at the server, and exports the JSON Schema for editors. It resolves
nothing that needs a clock or a machine: a deadline stays as written until the server receives it.
"""

import difflib
import re
import shlex
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from springtide.core.durations import is_instant, parse_instant, parse_span
from springtide.core.limits import MOST_DEVICES, MOST_STEPS
from springtide.errors import JobError

MOST_BYTES = 1 << 20
SHARES_ONE_BY_ONE = 16  # up to here every share of a range is tried, beyond it powers of two
NAME_RULE = "a lower-case letter, then up to 62 lower-case letters, digits or dashes"
_NAME = r"[a-z][a-z0-9-]{0,62}"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RANGE = re.compile(r"(\d+)\.\.(\d+)", re.ASCII)
_BUDGET = re.compile(r"(\d+(?:\.\d+)?) ?USD", re.ASCII)
# What the platform itself tells a worker, or what would change whose code runs there.
RESERVED = ("SPRINGTIDE_", "LD_")

Word = Annotated[str, Field(max_length=4096)]


class JobFileSection(BaseModel):
    """A mapping in the job file: frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Checkpoint(JobFileSection):
    """How often state is saved, how many saves are kept, where, and whether other code's may be resumed from."""

    every: Annotated[str, Field(max_length=64)] = "5m"
    keep: Annotated[int, Field(ge=1, le=1000)] = 2
    dir: Word | None = None
    allow_code_change: bool = False

    @field_validator("every")
    @classmethod
    def check_every(cls, text: str) -> str:
        """A span of time."""
        check_span(text, "checkpoint.every", instants=False)
        return text

    @field_validator("dir")
    @classmethod
    def check_dir(cls, text: str | None) -> str | None:
        """An absolute path without `..`."""
        if text is not None and (not text.startswith("/") or ".." in PurePosixPath(text).parts or "\0" in text):
            raise ValueError(f"{text!r} must be an absolute path without '..'")
        return text

    @property
    def every_s(self) -> float:
        """Seconds between checkpoints."""
        return parse_span(self.every, "checkpoint.every")


class Retry(JobFileSection):
    """How often a crash of the user's code is retried."""

    max: Annotated[int, Field(ge=0, le=1000)] = 3


class JobFile(JobFileSection):
    """What to run and by when. Only `run` is required."""

    name: Annotated[str, Field(pattern=f"^{_NAME}$")] | None = None
    run: Word | Annotated[list[Word], Field(min_length=1, max_length=1000)]
    workdir: Word = "."
    python: Word | None = None
    env: Annotated[dict[str, Word], Field(max_length=200)] = {}
    secrets: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=200)] = []
    logical_workers: Annotated[int, Field(ge=1, le=MOST_DEVICES)] | None = None
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = None
    deadline: Annotated[str, Field(max_length=64)] | None = None
    budget: Annotated[str, Field(max_length=64)] | None = None
    devices: int | Annotated[str, Field(max_length=32)] | Annotated[list[int], Field(max_length=256)] | None = None
    device_types: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=32)] | None = (
        None
    )
    determinism: Literal["D0", "D1", "D2"] = "D1"
    elastic: bool = True
    duration: Annotated[str, Field(max_length=64)] | None = None
    patience: Annotated[str, Field(max_length=64)] | None = None
    checkpoint: Checkpoint = Checkpoint()
    retry: Retry = Retry()
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0

    @field_validator("run")
    @classmethod
    def check_run(cls, value: str | list[str]) -> str | list[str]:
        """A command that splits into words, none of them holding a NUL."""
        try:
            words = shlex.split(value) if isinstance(value, str) else value
        except ValueError as error:
            raise ValueError(f"{value!r} cannot be split into words ({error}); write it as a list") from None
        if not words or not words[0]:
            raise ValueError("it is empty; write the command, as in: python train.py")
        if any("\0" in word for word in words):
            raise ValueError("a word holds a NUL character")
        return value

    @field_validator("env", mode="before")
    @classmethod
    def write_env(cls, value: Any) -> Any:
        """Numbers as text; true and false must be quoted, because their spelling would be lost."""
        if not isinstance(value, dict):
            return value
        for name, item in value.items():
            if isinstance(item, bool):
                raise ValueError(f"{name} is {str(item).lower()}; quote it, as in {name}: '{str(item).lower()}'")
        return {name: str(item) if isinstance(item, int | float) else item for name, item in value.items()}

    @field_validator("env")
    @classmethod
    def check_env(cls, value: dict[str, str]) -> dict[str, str]:
        """Names that can be variables and are not ours."""
        for name, text in value.items():
            check_variable(name)
            if "\0" in text:
                raise ValueError(f"{name} holds a NUL character")
        return value

    @field_validator("secrets")
    @classmethod
    def check_secrets(cls, value: list[str]) -> list[str]:
        """Names that can be variables and are not ours."""
        for name in value:
            check_variable(name)
        return value

    @field_validator("workdir", "python")
    @classmethod
    def check_path(cls, text: str | None) -> str | None:
        """A path without NUL."""
        if text is not None and (not text or "\0" in text):
            raise ValueError(f"{text!r} is not a path")
        return text

    @field_validator("deadline")
    @classmethod
    def check_deadline(cls, text: str | None) -> str | None:
        """A span, or an instant with a zone."""
        if text is not None:
            check_span(text, "deadline")
        return text

    @field_validator("duration")
    @classmethod
    def check_duration(cls, text: str | None) -> str | None:
        """A span."""
        if text is not None:
            check_span(text, "duration", instants=False)
        return text

    @field_validator("patience")
    @classmethod
    def check_patience(cls, text: str | None) -> str | None:
        """A span."""
        if text is not None:
            check_span(text, "patience", instants=False)
        return text

    @field_validator("budget")
    @classmethod
    def check_budget(cls, text: str | None) -> str | None:
        """An amount of dollars."""
        if text is not None and (_BUDGET.fullmatch(text) is None or parse_budget(text) <= 0):
            raise ValueError(f"{text!r} is not an amount; write '50 USD'")
        return text

    @field_validator("devices")
    @classmethod
    def check_devices(cls, value: int | str | list[int] | None) -> int | str | list[int] | None:
        """A number, a range or a list of numbers, all positive."""
        if value is not None:
            list_devices(value)
        return value

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Keys that need or exclude each other."""
        if self.duration is not None and self.elastic:
            raise ValueError("duration is only for jobs with elastic: false; an elastic job is measured")
        if not self.elastic and not isinstance(self.devices, int):
            raise ValueError("elastic: false needs a fixed number of devices, as in devices: 4")
        both = set(self.env) & set(self.secrets)
        if both:
            raise ValueError(f"{sorted(both)[0]} is in both env and secrets; keep it in one")
        if self.logical_workers is not None and self.devices is not None:
            fewest = list_devices(self.devices)[0]
            if self.elastic and fewest > self.logical_workers:
                raise ValueError(
                    f"devices {self.devices!r} asks for at least {fewest}, but logical_workers is "
                    f"{self.logical_workers}; a device holds at least one logical worker"
                )
        return self

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The command as words."""
        return tuple(shlex.split(self.run) if isinstance(self.run, str) else self.run)

    @property
    def script(self) -> str:
        """The script that the command runs: its first word that names a Python file, else its first word."""
        return next((word for word in self.words if word.endswith(".py")), self.words[0])

    @property
    def budget_usd(self) -> float | None:
        """The budget in dollars."""
        return None if self.budget is None else parse_budget(self.budget)

    @property
    def duration_s(self) -> float | None:
        """How long a rigid job says it runs."""
        return None if self.duration is None else parse_span(self.duration, "duration")

    @property
    def patience_s(self) -> float | None:
        """How long it may stand still between steps before it counts as hung."""
        return None if self.patience is None else parse_span(self.patience, "patience")

    def shares(self, logical_workers: int, most: int) -> tuple[int, ...]:
        """Numbers of devices it may hold on a cluster of `most`, ascending; empty if none fits."""
        wanted = list_devices(self.devices if self.devices is not None else f"1..{logical_workers}")
        limit = min(most, logical_workers) if self.elastic else most
        return tuple(share for share in wanted if share <= limit)


def check_span(text: str, what: str, instants: bool = True) -> None:
    """Refuse what is no span of time, nor (where they are allowed) an instant."""
    try:
        parse_instant(text, what) if instants and is_instant(text) else parse_span(text, what)
    except JobError as error:
        raise ValueError(str(error)) from None


def check_variable(name: str) -> None:
    """Refuse what cannot be an environment variable, or is the platform's own."""
    if _VARIABLE.fullmatch(name) is None or len(name) > 200:
        raise ValueError(f"{name!r} is not the name of an environment variable")
    if name.startswith(RESERVED):
        raise ValueError(f"{name} is reserved; names that start with {' or '.join(RESERVED)} are set by the platform")


def parse_budget(text: str) -> float:
    """The dollars of an amount such as `50 USD`."""
    match = _BUDGET.fullmatch(text)
    assert match is not None, "checked by the model"
    return float(match[1])


def list_devices(value: int | str | list[int]) -> tuple[int, ...]:
    """The numbers of devices that `4`, `1..8` or `[1, 2, 4]` permits, ascending."""
    if isinstance(value, int):
        numbers = {value}
    elif isinstance(value, str):
        match = _RANGE.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"{value!r} is neither a number, a range such as 1..8, nor a list such as [1, 2, 4]")
        low, high = int(match[1]), int(match[2])
        if low > high:
            raise ValueError(f"{value!r} is empty: {low} is above {high}")
        numbers = {low, high} if high > MOST_DEVICES else thin_range(low, high)
    else:
        numbers = set(value)
    if not numbers or min(numbers) < 1 or max(numbers) > MOST_DEVICES:
        raise ValueError(f"{value!r} must name numbers of devices from 1 to {MOST_DEVICES}")
    return tuple(sorted(numbers))


def thin_range(low: int, high: int) -> set[int]:
    """Shares worth trying in a range: each of the first sixteen, then powers of two, and its ends."""
    powers = {1 << exponent for exponent in range(high.bit_length())}
    one_by_one = set(range(low, min(high, SHARES_ONE_BY_ONE) + 1))
    return {low, high} | one_by_one | {power for power in powers if low <= power <= high}


class _Loader(yaml.SafeLoader):
    """YAML without aliases, repeated keys, dates, times, octals and yes/no booleans: what you read is what you get."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise JobError(f"line {mark.line + 1}: aliases (*name) are not accepted; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = getattr(key_node, "value", None)
            if isinstance(key, str) and key in seen:
                raise JobError(f"line {key_node.start_mark.line + 1}: key {key!r} is given twice; keep one")
            seen.add(key if isinstance(key, str) else id(key_node))
        return super().construct_mapping(node, deep)


_PREFIX = "tag:yaml.org,2002:"
# YAML 1.1 reads 1:30 as 90, 010 as 8, yes as true: those stay texts here, which the model then takes or refuses.
_PLAIN = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?(?:0|[1-9][0-9_]*)", "-+0123456789"),
    "float": (r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?", "-+0123456789."),
}
_Loader.yaml_implicit_resolvers = {
    letter: [(tag, rule) for tag, rule in rules if tag.removeprefix(_PREFIX) not in (*_PLAIN, "timestamp")]
    for letter, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _name, (_rule, _letters) in _PLAIN.items():
    _Loader.add_implicit_resolver(_PREFIX + _name, re.compile(rf"(?:{_rule})$"), list(_letters))


def read_job_file(path: Path) -> JobFile:
    """The job that a file describes."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise JobError(f"{path} is larger than {MOST_BYTES} bytes; a job file is a short text")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise JobError(f"job file {path} cannot be read ({reason}); write one, or start with: springtide new") from None
    return parse_job_text(text, str(path))


def parse_job_text(text: str, origin: str) -> JobFile:
    """The job that YAML (or JSON) text describes."""
    return check_job(parse_yaml(text, origin), origin)


def parse_yaml(text: str, origin: str) -> Any:
    """What YAML text holds, read strictly."""
    try:
        return yaml.load(text, _Loader)
    except JobError as error:
        raise JobError(f"{origin}, {error}") from None
    except RecursionError:
        raise JobError(f"{origin} is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise JobError(f"{origin} is not YAML: {' '.join(str(error).split())}") from None


def check_job(document: Any, origin: str) -> JobFile:
    """The job that a document describes, or one error that lists everything wrong with it."""
    if not isinstance(document, dict):
        raise JobError(f"{origin} holds {describe_type(document)}; a job file is a mapping with at least: run")
    try:
        return JobFile.model_validate(document)
    except ValidationError as error:
        raise JobError(f"{origin}: " + "; ".join(explain_errors(error.errors()))) from None


def describe_type(value: Any) -> str:
    """What a document is, in words."""
    return {type(None): "nothing", list: "a list", str: "a text", int: "a number"}.get(type(value), "no mapping")


def explain_errors(errors: Any) -> list[str]:
    """A sentence for each thing that pydantic found wrong, without repetition."""
    return list(dict.fromkeys(explain_error(error) for error in errors))


# Where pydantic would list each alternative it tried, one rule says it better.
RULES = {
    "run": "a text or a list of texts, as in: python train.py",
    "devices": "a number (4), a range (1..8) or a list of numbers ([1, 2, 4])",
    "deadline": "a span (90s, 6h, 1h30m) or a time with its zone (2026-11-16T09:00:00+01:00)",
    "duration": "a span (90s, 6h, 1h30m)",
    "budget": "an amount (50 USD)",
}


def explain_error(error: Any) -> str:
    """One sentence: the key, the value, the rule, the remedy."""
    place = [str(part) for part in error["loc"] if not is_branch(part)]
    key = ".".join(place)
    if error["type"] == "extra_forbidden":
        return f"unknown key {key!r}{suggest(place)}"
    if error["type"] == "json_invalid":
        return f"the body is not JSON ({error.get('ctx', {}).get('error', 'malformed')})"
    if error["type"] == "missing":
        return f"{key} is missing"
    if key == "name":
        return f"name {shorten(error['input'])} must be {NAME_RULE}"
    if place and place[0] in RULES and error["type"] != "value_error":
        return f"{place[0]} holds {shorten(error['input'])}; it must be {RULES[place[0]]}"
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "value_error":
        return message if not key or message.startswith(key) else f"{key}: {message}"
    if place[:1] == ["secrets"]:
        return f"{key}: {message[:1].lower()}{message[1:]}"  # whatever it is, its value is not repeated
    return f"{key} is {shorten(error.get('input'))}: {message[:1].lower()}{message[1:]}"


def is_branch(part: str | int) -> bool:
    """Whether a place in an error is pydantic's name of an alternative type, not a key."""
    return isinstance(part, str) and (part in ("str", "int", "body", "constrained-str") or "[" in part)


def suggest(place: list[str]) -> str:
    """The nearest known key, or all of them."""
    parts: dict[str, type[BaseModel]] = {"checkpoint": Checkpoint, "retry": Retry}
    owner = parts.get(place[0], JobFile) if place[1:] else JobFile
    near = difflib.get_close_matches(place[-1].lower(), owner.model_fields, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(owner.model_fields)}"


def shorten(value: Any) -> str:
    """A value as it was given, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def build_schema() -> dict[str, Any]:
    """The JSON Schema of a job file, for editors."""
    schema = JobFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Springtide job file"}
