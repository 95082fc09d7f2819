"""What is wrong with a job file, in sentences: the key, the value, the rule, the remedy. Pure."""

import difflib
from typing import Any

import yaml
from pydantic import BaseModel

from springtide.core.job_file_parts.job_sections import Checkpoint, Notice, Retry, Sweep

NAME_RULE = "a lower-case letter, then up to 62 lower-case letters, digits or dashes"


def explain_errors(errors: Any, model: type[BaseModel]) -> list[str]:
    """A sentence for each thing that pydantic found wrong, without repetition; `model` says which keys there are."""
    return list(dict.fromkeys(explain_error(error, model) for error in errors))


# Where pydantic would list each alternative it tried, one rule says it better.
RULES = {
    "run": "a text or a list of texts, as in: python train.py",
    "devices": "a number (4), a range (1..8) or a list of numbers ([1, 2, 4])",
    "deadline": "a span (90s, 6h, 1h30m) or a time with its zone (2026-11-16T09:00:00+01:00)",
    "duration": "a span (90s, 6h, 1h30m)",
    "budget": "an amount (50 USD)",
    "setup": "a text or a list of texts, as in: make -C kernels",
    "after": "the name of a job, a list of names, or a mapping from names to ok, any or failed",
}


#: What other schedulers call our keys.
ALIASES = {
    **dict.fromkeys(
        ("gpus", "gpu", "num_gpus", "n_gpus", "accelerators", "resources", "nodes", "num_nodes"), "devices"
    ),
    **dict.fromkeys(("command", "commands", "cmd", "script", "entrypoint"), "run"),
    **dict.fromkeys(("timeout", "time", "time_limit", "walltime"), "max_runtime"),
    **dict.fromkeys(("dependencies", "dependency", "depends_on", "needs"), "after"),
    **dict.fromkeys(("volumes", "mounts", "file_mounts", "datasets"), "inputs"),
    **dict.fromkeys(("envs", "environment", "variables"), "env"),
    **dict.fromkeys(("working_dir", "work_dir", "cwd"), "workdir"),
    **dict.fromkeys(("mem", "memory_limit"), "memory"),
    **dict.fromkeys(("retries", "max_retries", "restarts"), "retry"),
    **dict.fromkeys(("notifications", "webhooks", "email"), "notify"),
    **dict.fromkeys(("tags",), "labels"),
}


# What pydantic calls by Python's words.
TYPE_RULES = {
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "list_type": "a list",
    "string_type": "a text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "too_short": "a list of one or more",
}


def explain_error(error: Any, model: type[BaseModel]) -> str:
    """One sentence: the key, the value, the rule, the remedy."""
    place = [str(part) for part in error["loc"] if not is_branch(part)]
    key = ".".join(place)
    if error["type"] == "extra_forbidden":
        return f"unknown key {key!r}{suggest(place, model)}"
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
    # whatever a secret is, it is not repeated
    subject = key if place[:1] == ["secrets"] else f"{key} is {shorten(error.get('input'))}"
    lowered = f"{message[:1].lower()}{message[1:]}"
    example = find_example(place, model)
    if not example:
        return f"{subject}: {lowered}"
    rule = TYPE_RULES.get(error["type"]) or lowered.removeprefix("input should be ")
    return f"{subject}{'' if subject == key else '; it'} must be {rule}, as in {example}"


def find_example(place: list[str], model: type[BaseModel]) -> str:
    """A way to write the key in which something is wrong, from the model's own examples; empty if it has none."""
    field = model.model_fields.get("".join(place[:1]))
    return f"{place[0]}: {show_value(field.examples[0])}" if field is not None and field.examples else ""


def show_value(value: Any) -> str:
    """A value as one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def is_branch(part: str | int) -> bool:
    """Whether a place in an error is pydantic's name of an alternative type, not a key."""
    return isinstance(part, str) and (part in ("str", "int", "float", "body", "constrained-str") or "[" in part)


def suggest(place: list[str], model: type[BaseModel]) -> str:
    """The nearest known key, or all of them."""
    parts: dict[str, type[BaseModel]] = {"checkpoint": Checkpoint, "retry": Retry, "notify": Notice, "sweep": Sweep}
    owner = parts.get(place[0], model) if place[1:] else model
    known = ALIASES.get("".join(place).lower()) if owner is model else None
    if known is not None and known in model.model_fields:
        return f"; it is called {known!r} here, as in {find_example([known], model)}"
    near = difflib.get_close_matches("".join(place[-1:]).lower(), owner.model_fields, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(owner.model_fields)}"


def shorten(value: Any) -> str:
    """A value as it was given, cut to a readable length."""
    text = "empty" if value is None else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
