"""The job file: every key a user may write, checked once, with errors that name the key and the remedy.

The same model checks files at the client and bodies at the server, and exports the JSON Schema for editors. It resolves
nothing that needs a clock or a machine: a deadline stays as written until the server receives it.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from springtide.core.dependencies import AfterEnd, Dependency
from springtide.core.durations import parse_span
from springtide.core.job_file_parts.device_counts import list_devices
from springtide.core.job_file_parts.job_explanations import NAME_RULE, explain_errors
from springtide.core.job_file_parts.job_sections import (
    Checkpoint,
    Command,
    JobFileSection,
    Notice,
    Retry,
    Span,
    Sweep,
    Word,
    check_size,
    check_span,
    check_variable,
    is_absolute,
    is_web_address,
    refuse_shell_syntax,
    split_command,
)
from springtide.core.job_file_parts.strict_yaml import parse_yaml
from springtide.core.job_file_parts.sweeps import find_unknown_mark
from springtide.core.limits import MOST_DEVICES, MOST_STEPS
from springtide.core.sizes import parse_size
from springtide.errors import JobError

_NAME = r"[a-z][a-z0-9-]{0,62}"
_BUDGET = re.compile(r"(\d+(?:\.\d+)?) ?USD", re.ASCII)
_LABEL = re.compile(r"[a-z0-9][a-z0-9._/-]{0,62}", re.ASCII)
_LABEL_VALUE = re.compile(r"[A-Za-z0-9._-]{0,63}", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9._+-]{1,64}", re.ASCII)
_INPUT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}", re.ASCII)


class JobFile(JobFileSection):
    """What to run and by when. Only `run` is required."""

    name: Annotated[str, Field(pattern=f"^{_NAME}$")] | None = Field(
        default=None,
        description=f"What the job is called: {NAME_RULE}. Default: the script's name plus four letters.",
        examples=["digits-cnn"],
    )
    run: Command = Field(
        description="The command, a text or a list of words. It is never given to a shell; shell syntax in a text is "
        'refused. For a shell, say so: `[bash, -c, "..."]`.',
        examples=["python train.py --lr 0.1", ["python", "train.py", "--lr", "0.1"]],
    )
    workdir: Word = Field(
        default=".",
        description="The folder of the code, from the job file on. It is packed at submission.",
        examples=["src"],
    )
    version: Annotated[str, Field(max_length=64)] | None = Field(
        default=None,
        description="What you call this code, as far as its speed goes: while it stays the same, a changed file does "
        "not call for a new probe. Default: a hash of the modules that the script imports and the files it names.",
        examples=["resnet-2"],
    )
    setup: Command | None = Field(
        default=None,
        description="Lines for `sh -e`, run once per code version in a copy of the code from which the jobs then run. "
        "A failing one fails the job; its output is in the job's log.",
        examples=[["make -C kernels", "python download_vocab.py"]],
    )
    python: Word | None = Field(
        default=None,
        description="The interpreter, with springtide in it. Default: the server's.",
        examples=["/opt/env/bin/python"],
    )
    env: Annotated[dict[str, Word], Field(max_length=200)] = Field(
        default={},
        description="Environment variables. Change one at submission with `--env NAME=VALUE`.",
        examples=[{"LR": "0.1"}],
    )
    secrets: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=200)] = Field(
        default=[],
        description="Names of variables whose values come from the environment you submit from. They are in no record.",
        examples=[["WANDB_API_KEY"]],
    )
    inputs: Annotated[dict[str, Word], Field(max_length=100)] = Field(
        default={},
        description="Data by name: an absolute path, or an http(s) address that is fetched once and kept. It is "
        "`$SPRINGTIDE_INPUTS/NAME`, and read-only for your code: writing ends with `Read-only file system`. Where the "
        "machine does not let us mount it so, the job's log says that. What it holds is fingerprinted at every start "
        "and every minute; a change while the job lives is told.",
        examples=[{"digits": "/data/digits", "vocab": "https://example.org/vocab.txt"}],
    )
    outputs: Annotated[list[Word], Field(max_length=100)] = Field(
        default=[],
        description="Files or patterns below `$SPRINGTIDE_OUTPUT`; without one of them at its end the job has failed.",
        examples=[["metrics.json", "plots/*.png"]],
    )
    logical_workers: Annotated[int, Field(ge=1, le=MOST_DEVICES)] | None = Field(
        default=None,
        description="The ranks of the DDP run whose bits are kept. Default: as the script says in `springtide.init`.",
        examples=[8],
    )
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = Field(
        default=None, description="Stop after so many global steps. Default: what the script says.", examples=[1000]
    )
    deadline: Span | None = Field(
        default=None,
        description="By when it should end: a span from receipt, or a time with its zone. With `after` a span counts "
        "from the end of the jobs it waits for. Without one the job is best effort.",
        examples=["6h", "2026-11-16T09:00:00+01:00"],
    )
    budget: Span | None = Field(
        default=None,
        description="What it may cost; it is paused when that is spent. Needs a price at the server.",
        examples=["50 USD"],
    )
    max_runtime: Span | None = Field(
        default=None,
        description="How long it may hold devices in all. It is then checkpointed and ended; `springtide resume` gives "
        "it as long again.",
        examples=["12h"],
    )
    memory: Span | None = Field(
        default=None,
        description="What its processes may use together on one machine. A job that passes it has failed; no other job "
        "suffers. Where the machine does not let us limit it (control groups), the job's log says that. Default: what "
        "`most_memory` in `server.yaml` says, else no limit.",
        examples=["16 GiB"],
    )
    devices: int | Annotated[str, Field(max_length=32)] | Annotated[list[int], Field(max_length=256)] | None = Field(
        default=None,
        description="How many devices it may hold: a number, a range or a list. Default: 1 up to the logical workers.",
        examples=["1..8", 4, [1, 2, 4]],
    )
    device_types: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=32)] | None = (
        Field(default=None, description="The types it may run on. Default: any.", examples=[["a100", "h100"]])
    )
    determinism: Literal["D0", "D1", "D2"] = Field(
        default="D1", description="Which changes of devices keep the bits; D2 also those of the type.", examples=["D2"]
    )
    elastic: bool = Field(
        default=True,
        description="False: a gang of fixed size with torchrun's variables, for a script without `springtide.init`.",
        examples=[False],
    )
    duration: Span | None = Field(
        default=None,
        description="With `elastic: false`: how long it runs, so that it can be promised.",
        examples=["2h"],
    )
    patience: Span | None = Field(
        default=None,
        description="How long it may stand still between steps before it counts as hung.",
        examples=["10m"],
    )
    checkpoint: Checkpoint = Field(
        default=Checkpoint(), description="When and where state is saved.", examples=[{"every": "10m", "keep": 3}]
    )
    retry: Retry = Field(
        default=Retry(), description="How often a crash of your code is retried.", examples=[{"max": 0}]
    )
    after: Word | Annotated[list[Word], Field(max_length=100)] | dict[str, Literal["ok", "any", "failed"]] | None = (
        Field(
            default=None,
            description="Jobs to wait for, by name or id: a name, a list, or a mapping to `ok` (it has succeeded; the "
            "default), `failed` (it has ended in another way) or `any`. If one ends otherwise, this job is cancelled.",
            examples=["prepare", ["prepare", "tokenise"], {"prepare": "ok", "cleanup": "any"}],
        )
    )
    hold: bool = Field(
        default=False,
        description="Whether it waits, paused, until `springtide release`; a deadline that is a span counts from then.",
        examples=[True],
    )
    notify: Annotated[list[Notice], Field(max_length=20)] = Field(
        default=[],
        description="Whom to tell what, by a webhook, by mail or by a command.",
        examples=[[{"webhook": "https://example.org/hook", "on": ["ended"]}, {"email": "ann@example.org"}]],
    )
    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)] = Field(
        default={}, description="Words to find it by.", examples=[{"team": "vision", "paper": "iclr"}]
    )
    sweep: Sweep | None = Field(
        default=None,
        description="Many jobs of one file, shown as one line. A value replaces `{name}` in `run`; a name that `run` "
        "does not hold is set as an environment variable.",
        examples=[{"grid": {"lr": [0.1, 0.01], "seed": [1, 2, 3]}}],
    )
    priority: Annotated[int, Field(ge=-1000, le=1000)] = Field(
        default=0, description="Among best-effort jobs, a higher one goes first.", examples=[10]
    )

    @field_validator("run")
    @classmethod
    def check_run(cls, value: str | list[str], info: ValidationInfo) -> str | list[str]:
        """A command that splits into words and needs no shell."""
        split_command(value)
        refuse_shell_syntax(value, "run", info)
        return value

    @field_validator("setup")
    @classmethod
    def check_setup(cls, value: str | list[str] | None) -> str | list[str] | None:
        """Lines that say something."""
        for line in [value] if isinstance(value, str) else value or ():
            if not line.strip() or "\0" in line:
                raise ValueError("setup holds an empty line; write commands, as in: make -C kernels")
        return value

    @field_validator("version")
    @classmethod
    def check_version(cls, text: str | None) -> str | None:
        """A word."""
        if text is not None and _VERSION.fullmatch(text) is None:
            raise ValueError(
                f"version {text!r} must be one word of at most 64 letters, digits, dots, dashes or plusses"
            )
        return text

    @field_validator("inputs")
    @classmethod
    def check_inputs(cls, value: dict[str, str]) -> dict[str, str]:
        """Names that can be files, of absolute paths or addresses of the web."""
        for name, source in value.items():
            if _INPUT.fullmatch(name) is None:
                raise ValueError(
                    f"inputs: {name!r} must be letters, digits, dots, dashes and underscores; it names a file"
                )
            if not is_absolute(source) and not is_web_address(source):
                raise ValueError(f"inputs: {name} is {source!r}; it must be an absolute path or an http(s) address")
        return value

    @field_validator("outputs")
    @classmethod
    def check_outputs(cls, value: list[str]) -> list[str]:
        """Names below the output folder."""
        for text in value:
            if not text or "\0" in text or text.startswith("/") or ".." in PurePosixPath(text).parts:
                raise ValueError(
                    f"outputs: {text!r} must be a name or a pattern below $SPRINGTIDE_OUTPUT, without '..'"
                )
        return value

    @field_validator("after")
    @classmethod
    def check_after(cls, value: str | list[str] | dict[str, str] | None) -> str | list[str] | dict[str, str] | None:
        """Names of jobs."""
        for name in [value] if isinstance(value, str) else value or ():
            if not name.strip() or len(name) > 200:
                raise ValueError(f"after: {name!r} is not a job; write its name or its id")
        return value

    @field_validator("labels", mode="before")
    @classmethod
    def write_labels(cls, value: Any) -> Any:
        """Numbers as text."""
        return write_numbers(value)

    @field_validator("labels")
    @classmethod
    def check_labels(cls, value: dict[str, str]) -> dict[str, str]:
        """Short words."""
        for name, text in value.items():
            if _LABEL.fullmatch(name) is None:
                raise ValueError(f"labels: {name!r} must be lower-case letters, digits and . _ / -, at most 63 of them")
            if _LABEL_VALUE.fullmatch(text) is None:
                raise ValueError(
                    f"labels: {name} is {text!r}; it must be letters, digits and . _ -, at most 63 of them"
                )
        return value

    @field_validator("env", mode="before")
    @classmethod
    def write_env(cls, value: Any) -> Any:
        """Numbers as text; true and false must be quoted, because their spelling would be lost."""
        return write_numbers(value)

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

    @field_validator("duration", "patience", "max_runtime")
    @classmethod
    def check_spans(cls, text: str | None, info: ValidationInfo) -> str | None:
        """A span."""
        if text is not None:
            check_span(text, info.field_name or "", instants=False)
        return text

    @field_validator("budget")
    @classmethod
    def check_budget(cls, text: str | None) -> str | None:
        """An amount of dollars."""
        if text is not None and (_BUDGET.fullmatch(text) is None or parse_budget(text) <= 0):
            raise ValueError(f"{text!r} is not an amount; write '50 USD'")
        return text

    @field_validator("memory")
    @classmethod
    def check_memory(cls, text: str | None) -> str | None:
        """An amount of memory."""
        if text is not None:
            check_size(text, "memory")
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
        if self.duration_s is not None and self.max_runtime_s is not None and self.duration_s > self.max_runtime_s:
            raise ValueError(
                f"duration {self.duration} is longer than max_runtime {self.max_runtime}; it could never end"
            )
        if self.sweep is not None and (unknown := find_unknown_mark(self.words, self.sweep.common_names)):
            raise ValueError(
                f"run holds {unknown}, and not every job of the sweep has a value of that name; all have: "
                f"{', '.join(self.sweep.common_names) or 'none'}"
            )
        if self.sweep is not None and self.checkpoint.dir is not None:
            raise ValueError("checkpoint.dir cannot be shared by the jobs of a sweep; leave it out, each has a folder")
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

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some keys changed; what was found out of the others' sum is found out anew."""
        made = super().model_copy(update=update, deep=deep)
        for known in ("document", "words"):
            vars(made).pop(known, None)
        return made

    @cached_property
    def document(self) -> dict[str, Any]:
        """What it says beside the defaults, as JSON data; not to be changed by whoever stores or shows it."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The command as words."""
        return split_command(self.run)

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

    @property
    def max_runtime_s(self) -> float | None:
        """How long it may hold devices."""
        return None if self.max_runtime is None else parse_span(self.max_runtime, "max_runtime")

    @property
    def memory_bytes(self) -> int | None:
        """What its processes may use together on one machine."""
        return None if self.memory is None else parse_size(self.memory, "memory")

    @property
    def setup_lines(self) -> tuple[str, ...]:
        """The lines of its setup."""
        return (self.setup,) if isinstance(self.setup, str) else tuple(self.setup or ())

    @property
    def dependencies(self) -> tuple[Dependency, ...]:
        """The jobs it waits for."""
        if isinstance(self.after, dict):
            return tuple(Dependency(name, AfterEnd(end)) for name, end in self.after.items())
        names = [self.after] if isinstance(self.after, str) else self.after or []
        return tuple(Dependency(name) for name in dict.fromkeys(names))

    def shares(self, logical_workers: int, most: int) -> tuple[int, ...]:
        """Numbers of devices it may hold on a cluster of `most`, ascending; empty if none fits."""
        wanted = list_devices(self.devices if self.devices is not None else f"1..{logical_workers}")
        limit = min(most, logical_workers) if self.elastic else most
        return tuple(share for share in wanted if share <= limit)


def write_numbers(value: Any) -> Any:
    """Numbers as text; true and false must be quoted, because their spelling would be lost."""
    if not isinstance(value, dict):
        return value
    for name, item in value.items():
        if isinstance(item, bool):
            raise ValueError(f"{name} is {str(item).lower()}; quote it, as in {name}: '{str(item).lower()}'")
    return {name: str(item) if isinstance(item, int | float) else item for name, item in value.items()}


def parse_budget(text: str) -> float:
    """The dollars of an amount such as `50 USD`."""
    match = _BUDGET.fullmatch(text)
    assert match is not None, "checked by the model"
    return float(match[1])


def parse_job_text(text: str, origin: str) -> JobFile:
    """The job that YAML (or JSON) text describes."""
    return check_job(parse_yaml(text, origin), origin)


def check_job(document: Any, origin: str) -> JobFile:
    """The job that a document describes, or one error that lists everything wrong with it."""
    if not isinstance(document, dict):
        raise JobError(f"{origin} holds {describe_type(document)}; a job file is a mapping with at least: run")
    try:
        return JobFile.model_validate(document)
    except ValidationError as error:
        raise JobError(f"{origin}: " + "; ".join(explain_errors(error.errors(), JobFile))) from None


def describe_type(value: Any) -> str:
    """What a document is, in words."""
    return {type(None): "nothing", list: "a list", str: "a text", int: "a number"}.get(type(value), "no mapping")


def build_schema() -> dict[str, Any]:
    """The JSON Schema of a job file, for editors."""
    schema = JobFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Springtide job file"}
