"""State as a tree of plain values and tensors, taken apart into JSON and named tensors, and put together again.

The one form in which state leaves a process: into a checkpoint or to a joining process. No code is ever loaded with
it. Dictionaries keep keys that JSON would turn into strings.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import torch

from springtide.errors import JobError

Tensors = dict[str, torch.Tensor]
#: Keys and places on the way from a tree to a part of it.
Path = Sequence[str | int]


def take_apart(tree: Any) -> tuple[str, Tensors]:
    """The tree's shape and plain values as JSON, and its tensors by path."""
    tensors: Tensors = {}
    return json.dumps(strip(tree, "", tensors)), tensors


def put_together(text: str, tensors: Tensors) -> Any:
    """The tree that `take_apart` took apart."""
    return fill(json.loads(text), tensors)


def strip(value: Any, path: str, tensors: Tensors) -> Any:
    """A JSON value for a part of the tree; tensors are put aside under their path."""
    if isinstance(value, torch.Tensor):
        while path in tensors:  # as of {"a/b": ...} and {"a": {"b": ...}}, or of keys 1 and "1"
            path += "+"
        tensors[path] = value.detach()
        return {"tensor": path}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        items = [[key, strip(item, f"{path}/{key}", tensors)] for key, item in value.items()]
        check_keys(value, path)
        return {"dict": items}
    if isinstance(value, list | tuple):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [strip(item, f"{path}/{place}", tensors) for place, item in enumerate(value)]}
    raise JobError(
        f"state at {path or '/'} is a {type(value).__name__}; state that must survive a resume is made of numbers, "
        "strings, tensors, and lists, tuples and dicts of them"
    )


def check_keys(value: dict[Any, Any], path: str) -> None:
    """Refuse keys that do not survive."""
    for key in value:
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise JobError(f"state at {path or '/'} has the key {key!r}; keys must be strings or integers")


def fill(value: Any, tensors: Tensors) -> Any:
    """The part of a tree that a JSON value stands for."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: fill(item, tensors) for key, item in content}
    items = [fill(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items


def find_placed(value: Any, path: Path = ()) -> list[Path]:
    """Where in a tree tensors lie on an accelerator, by keys and places: read back, every tensor is on the CPU."""
    if isinstance(value, torch.Tensor):
        return [] if value.device.type == "cpu" else [path]
    return [found for key, item in list_items(value) for found in find_placed(item, (*path, key))]


def move_placed(value: Any, placed: Iterable[Path], device: torch.device) -> Any:
    """Put the tensors of these places on a device; containers stay the objects that they are, but for tuples."""
    below: dict[Any, list[Path]] = {}
    for path in placed:
        below.setdefault(path[0] if path else None, []).append(path[1:])
    if isinstance(value, torch.Tensor):
        return value.to(device) if below else value
    items = {key: move_placed(item, below[key], device) for key, item in list_items(value) if key in below}
    if isinstance(value, tuple):
        return tuple(items.get(place, item) for place, item in enumerate(value))
    for key, item in items.items():
        value[key] = item
    return value


def list_items(value: Any) -> list[tuple[Any, Any]]:
    """The items of a container by keys or places; nothing has none."""
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list | tuple) else []


def refill(here: Any, value: Any) -> Any:
    """A value, in the object that is there if it can hold it: whoever has that object has the value then."""
    if isinstance(here, torch.Tensor) and isinstance(value, torch.Tensor):
        if (here.shape, here.dtype) != (value.shape, value.dtype):
            return value
        with torch.no_grad():
            return here.copy_(value)
    if isinstance(here, dict) and isinstance(value, dict):
        items = {key: refill(here.get(key), item) for key, item in value.items()}
        here.clear()
        here.update(items)
        return here
    if isinstance(here, list) and isinstance(value, list):
        here[:] = [refill(old, new) for old, new in zip_longest(here[: len(value)], value)]
        return here
    return value
