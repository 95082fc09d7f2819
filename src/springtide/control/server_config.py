"""`server.yaml` in the state directory: what its owner sets, each key checked for its type and range."""

import difflib
from dataclasses import replace
from typing import (
    Annotated,
    Any,
    Literal,
    Required,  # before Python 3.12 pydantic takes no other
)

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, ValidationInfo
from typing_extensions import TypedDict

from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.storage.state_dir import StateDir
from springtide.core.job_file_parts.job_explanations import shorten
from springtide.core.job_file_parts.job_sections import check_size
from springtide.core.job_file_parts.strict_yaml import parse_yaml
from springtide.errors import InputError

Amount = Annotated[float, Field(gt=0, le=10**9, allow_inf_nan=False)]


def check_memory(text: str, info: ValidationInfo) -> str:
    """An amount of memory."""
    check_size(text, str(info.field_name))
    return text


Memory = Annotated[str, AfterValidator(check_memory)]


class SmtpConfig(TypedDict, total=False):
    """By which server mail goes."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]

    host: Required[Annotated[str, Field(min_length=1, max_length=255)]]
    port: Annotated[int, Field(ge=1, le=65535)]
    sender: Annotated[str, Field(min_length=3, max_length=254)]
    user: Annotated[str, Field(max_length=254)]
    password_file: Annotated[str, Field(max_length=4096)]
    security: Literal["none", "starttls", "tls"]


class ServerConfig(TypedDict, total=False):
    """The keys that may be set, which are those of `ServerOptions`."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]

    policy: Annotated[str, Field(min_length=1, max_length=200)]
    price_per_device_hour: Amount | None
    prices: Annotated[dict[str, Amount], Field(max_length=200)]
    weights: Annotated[dict[str, Amount], Field(max_length=10**5)]
    archive_limit_bytes: Annotated[int, Field(ge=1000, le=10**11)]
    most_active: Annotated[int, Field(ge=1, le=10**7)]
    rate_per_s: Amount
    burst: Annotated[int, Field(ge=1, le=10**9)]
    reads_per_s: Amount
    read_burst: Annotated[int, Field(ge=1, le=10**9)]
    most_connections: Annotated[int, Field(ge=10, le=10**5)]
    keep_days: Annotated[float, Field(ge=1, le=36500, allow_inf_nan=False)]
    clouds: Annotated[str, Field(min_length=1, max_length=200)]
    smtp: SmtpConfig
    most_memory: Memory
    most_processes: Annotated[int, Field(ge=100, le=4_000_000)]
    idle_patience_s: Annotated[float, Field(ge=5, le=86400, allow_inf_nan=False)]
    warm_servers: Annotated[int, Field(ge=0, le=1000)]
    warm_s: Annotated[float, Field(ge=0, le=10**7, allow_inf_nan=False)]
    warm_memory: Memory
    outside_load: bool
    nodes: Annotated[int, Field(ge=1, le=4096)]
    storage: Annotated[str, Field(min_length=1, max_length=1000)] | None


KEYS = tuple(ServerConfig.__annotations__)
CONFIG: TypeAdapter[ServerConfig] = TypeAdapter(ServerConfig)


def read_config(state_dir: StateDir, options: ServerOptions) -> ServerOptions:
    """The options with what `server.yaml` in the state directory says; what the command line changed stays."""
    if not state_dir.config.exists():
        return options
    told = check_config(str(state_dir.config), read_document(state_dir))
    standard = ServerOptions()
    changed = {key: value for key in KEYS if (value := getattr(options, key)) != getattr(standard, key)}
    return replace(standard, **{**told, **changed})


def read_document(state_dir: StateDir) -> Any:
    """What the file holds; an empty one sets nothing."""
    try:
        text = state_dir.config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{state_dir.config} cannot be read ({error}); write it anew, or remove it") from None
    document = parse_yaml(text, str(state_dir.config))
    return {} if document is None else document


def check_config(origin: str, document: Any) -> ServerConfig:
    """The keys and values of a document, or one error that lists everything wrong with it."""
    if not isinstance(document, dict):
        raise InputError(f"{origin} is not a mapping; write lines such as: policy: springtide")
    try:
        return CONFIG.validate_python(document)
    except ValidationError as error:
        raise InputError(f"{origin}: " + "; ".join(explain(one) for one in error.errors())) from None


def explain(error: Any) -> str:
    """One sentence: the key, the value, the rule."""
    key = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, KEYS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(KEYS))}"
        return f"{key} is not known; {hint}"
    rule = str(error["msg"])
    return f"{key} is {shorten(error['input'])}: {rule[:1].lower()}{rule[1:]}"
