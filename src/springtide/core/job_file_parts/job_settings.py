"""Keys of a job file changed where it is submitted: `deadline=2h`, `checkpoint.every=1m`, variables `LR=0.1`. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from springtide.core.job_file_parts.strict_yaml import parse_yaml
from springtide.errors import JobError


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What to change: keys as `KEY=VALUE`, with dots into mappings and values as YAML; variables as `NAME=VALUE`."""

    keys: Sequence[str] = ()
    env: Sequence[str] = ()

    def apply(self, document: dict[str, Any]) -> dict[str, Any]:
        """A document with these changes; it is not checked here whether its keys and values may be."""
        for text in self.keys:
            key, value = split_setting(text, "--set", "KEY=VALUE, as in deadline=2h")
            document = set_key(document, key.split("."), parse_yaml(value, f"--set {key}"), key)
        for text in self.env:
            name, value = split_setting(text, "--env", "NAME=VALUE, as in LR=0.1")
            document = set_key(document, ["env", name], value, f"env.{name}")
        return document


def split_setting(text: str, option: str, form: str) -> tuple[str, str]:
    """What stands before and after the first equals sign."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise JobError(f"{option} {text!r} must be {form}")
    return name.strip(), value


def set_key(document: dict[str, Any], path: list[str], value: Any, key: str) -> dict[str, Any]:
    """A document with another value at a path; null takes a key out."""
    first, rest = path[0], path[1:]
    if not rest:
        kept = {name: old for name, old in document.items() if name != first}
        return kept if value is None else {**kept, first: value}
    inner = document.get(first, {})
    if not isinstance(inner, dict):
        raise JobError(f"--set {key}: {first} is not a mapping, so it has no {'.'.join(rest)}; set {first} whole")
    return {**document, first: set_key(inner, rest, value, key)}
