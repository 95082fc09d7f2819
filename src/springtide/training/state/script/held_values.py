"""Values that objects of a script hold, as they are kept: told apart, made plain for a checkpoint, and put back.

Numbers and arrays of NumPy, deques, sets, members of enumerations, random generators and objects with a `state_dict`
become plain values with a word of what they were; tensors are kept without their graphs.
"""

import pickle
import zlib
from collections import Counter, OrderedDict, defaultdict, deque
from enum import Enum
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from springtide.training.state.digests import is_sharded
from springtide.training.state.divergence import number_tensor
from springtide.training.workers import generators

PLAIN = (bool, int, float, str, type(None))
CONTAINERS = (dict, list, tuple, deque)
SETS = (set, frozenset)
#: Containers that are made again as what they were, and what a dictionary may make of a key that it has not.
MADE_AGAIN = {dict, list, tuple, deque, torch.Size, OrderedDict, Counter, defaultdict}
FACTORIES = {one.__name__: one for one in (int, float, str, bool, list, dict, set, tuple, deque, Counter)}
#: The kinds of NumPy's numbers and arrays that are kept.
NUMBERS = "biuf"
#: Under this key a plain value says what it stands for.
KIND = "springtide kind"
#: How deep values are looked into, and how many items of one container.
DEEPEST = 5
MOST = 10_000
#: Numbers in a container that has other items than at the start and is still kept whole.
LARGEST = 1 << 24
#: Numbers of a large tensor or array that are looked at: what trains changes all of them.
SAMPLED = 1 << 16


def is_single(value: Any) -> bool:
    """Whether a value is one that is set as a whole, and not a thing that others may hold as well."""
    kind = type(value)
    # A proxy may answer isinstance by doing things, its type does not.
    return kind in PLAIN or issubclass(kind, Enum) or (issubclass(kind, np.generic) and value.dtype.kind in NUMBERS)


def is_kept(value: Any) -> bool:
    """Whether a value is a tensor, an array, a set or a random generator that can be kept."""
    if issubclass(type(value), torch.Tensor):
        return value.layout is torch.strided and not value.is_meta and not is_sharded(value) and value.numel() > 0
    if type(value) is np.ndarray:
        return value.dtype.kind in NUMBERS
    if issubclass(type(value), generators.KINDS):
        return not generators.is_global(value)
    return type(value) in SETS and len(value) <= MOST and all(type(item) in PLAIN for item in value)


def is_tree(value: Any, depth: int = DEEPEST) -> bool:
    """Whether a value is what can be kept, down to a depth.

    A container of another kind can be filled where it is, and not be made in another.
    """
    if isinstance(value, CONTAINERS):
        if not is_made_again(value) and (depth < DEEPEST or isinstance(value, tuple)):
            return False
        has_keys = not isinstance(value, dict) or all(type(key) in (str, int) for key in value)
        items = value.values() if isinstance(value, dict) else value
        return depth > 0 and has_keys and all(is_tree(item, depth - 1) for item in items)
    if isinstance(value, torch.Tensor) and value.numel() == 0:
        return value.layout is torch.strided and not value.is_meta
    return is_single(value) or is_kept(value)


def is_made_again(value: Any) -> bool:
    """Whether a container can be made anew; a named tuple where there is one with its names."""
    if type(value) is defaultdict:
        return value.default_factory in (None, *FACTORIES.values())
    return type(value) in MADE_AGAIN or is_named(value)


def is_named(value: Any) -> bool:
    """Whether a value is a named tuple."""
    return isinstance(value, tuple) and isinstance(getattr(type(value), "_fields", None), tuple)


def is_small(value: Any) -> bool:
    """Whether a value is one to be kept: any tensor that was there, but no container that fills, as a cache does."""
    return is_tree(value) and (not isinstance(value, CONTAINERS) or count_numbers(value) <= LARGEST)


def count_numbers(value: Any) -> int:
    """How many numbers are in a value."""
    if isinstance(value, CONTAINERS):
        return sum(map(count_numbers, value.values() if isinstance(value, dict) else value))
    if isinstance(value, torch.Tensor):
        return value.numel()
    return value.size if isinstance(value, np.ndarray) else 1


# Objects of packages that say what their state is.


def is_stateful(value: Any) -> bool:
    """Whether a value is an object of a package with a state to save and to load, as a library's average of weights.

    What is walked over has a place in data for its state, which the run knows itself.
    """
    kind = type(value)
    has_both = all(callable(getattr(kind, name, None)) for name in ("state_dict", "load_state_dict"))
    return has_both and not hasattr(kind, "__iter__")


def read_state(value: Any) -> Any:
    """The state of such an object; None if it has none now."""
    try:
        return value.state_dict()
    except Exception:  # a package's, which may be in any condition
        return None


# Whether a value has become another.


def mark(value: Any) -> Any:
    """Something that is another when the value is; of a container when it has other keys or another number of items."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().reshape(-1)
        step = max(1, len(flat) // SAMPLED)
        return tuple(value.shape), 0 if value.is_inference() else value._version, int(number_tensor(flat[::step]))
    if isinstance(value, np.ndarray):
        step = max(1, value.size // SAMPLED) if value.flags.c_contiguous else 1
        return value.shape, value.dtype.str, zlib.crc32(value.reshape(-1)[::step].tobytes())
    if isinstance(value, dict):
        return type(value).__name__, [key if type(key) in PLAIN else None for key in value]
    if isinstance(value, tuple):  # its plain items cannot be set one by one
        return type(value).__name__, len(value), [mark(item) for item in value[:MOST] if is_single(item)]
    if isinstance(value, CONTAINERS):
        return type(value).__name__, len(value)
    if type(value) in SETS:
        return type(value).__name__, frozenset(value)
    if issubclass(type(value), generators.KINDS):
        return type(value).__name__, number_generator(value)
    return type(value).__name__, repr(value)


def number_generator(one: Any) -> int:
    """A number of what a generator draws its next numbers by."""
    state = generators.capture(one)
    # a pickled tensor has its place in memory in it, which is another in every call
    return zlib.crc32(state.numpy().tobytes() if isinstance(state, torch.Tensor) else pickle.dumps(state))


def mark_whole(value: Any) -> Any:
    """The same of all that is in a state."""
    if isinstance(value, CONTAINERS):
        items = value.values() if isinstance(value, dict) else value
        return mark(value), [mark_whole(item) for item in items]
    return mark(value) if is_kept(value) or is_single(value) else type(value).__name__


# As plain values.


def to_plain(value: Any) -> Any:
    """A value as it is kept: live tensors, and plain values."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, Enum):
        return {KIND: "member", "name": value.name}
    if isinstance(value, np.generic):
        return {KIND: "number", "type": value.dtype.str, "value": value.item()}
    if isinstance(value, np.ndarray):
        held = torch.from_numpy(np.array(value, order="C").reshape(-1).view(np.uint8))
        return {KIND: "array", "type": value.dtype.str, "shape": list(value.shape), "value": held}
    if isinstance(value, deque):
        return {KIND: "deque", "most": value.maxlen, "items": [to_plain(item) for item in value]}
    if type(value) in SETS:
        return {KIND: type(value).__name__, "items": sorted(value, key=repr)}
    if issubclass(type(value), generators.KINDS):
        return {KIND: "generator", "state": to_plain(generators.capture(value))}
    if isinstance(value, dict):
        plain = {key: to_plain(item) for key, item in value.items()}
        return plain if type(value) is dict or not is_made_again(value) else to_plain_mapping(value, plain)
    if is_named(value):
        return {KIND: "named", "names": list(value._fields), "items": [to_plain(item) for item in value]}
    if isinstance(value, torch.Size):
        return {KIND: "Size", "items": list(value)}
    if isinstance(value, list | tuple):
        items = [to_plain(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def to_plain_mapping(value: Any, items: dict[Any, Any]) -> dict[str, Any]:
    """A dictionary of a kind of its own."""
    factory = getattr(value, "default_factory", None)
    more = {"factory": None if factory is None else factory.__name__} if type(value) is defaultdict else {}
    return {KIND: type(value).__name__, "items": items, **more}


def from_plain(value: Any) -> Any:
    """What was made plain; a member of an enumeration stays it, for only whoever has its class can find it.

    So does a named tuple.
    """
    if isinstance(value, list | tuple):
        items = [from_plain(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if not isinstance(value, dict):
        return value
    if value.get(KIND) == "number":
        return np.dtype(value["type"]).type(value["value"])
    if value.get(KIND) == "array":
        held = value["value"].cpu().numpy().copy()
        return held.view(np.dtype(value["type"])).reshape(value["shape"])
    if value.get(KIND) == "deque":
        return deque((from_plain(item) for item in value["items"]), value["most"])
    if value.get(KIND) in ("set", "frozenset"):
        return set(value["items"]) if value[KIND] == "set" else frozenset(value["items"])
    if value.get(KIND) == "Size":
        return torch.Size(value["items"])
    if value.get(KIND) in ("OrderedDict", "Counter", "defaultdict"):
        items_ = {key: from_plain(item) for key, item in value["items"].items()}
        if value[KIND] == "defaultdict":
            return defaultdict(FACTORIES.get(value["factory"]), items_)
        return OrderedDict(items_) if value[KIND] == "OrderedDict" else Counter(items_)
    return {key: from_plain(item) for key, item in value.items()}


def refill(here: Any, value: Any) -> Any:
    """A value, in the object that is there if it can hold it: whoever has that object has the value then.

    LookupError if its class is not found here.
    """
    if isinstance(value, dict) and value.get(KIND) in ("member", "named"):
        return refill_class(here, value)
    if isinstance(value, dict) and value.get(KIND) == "generator":
        generators.restore(here, value["state"])
        return here
    if isinstance(here, torch.Tensor) and isinstance(value, torch.Tensor):
        return refill_tensor(here, value)
    if type(here) is np.ndarray and isinstance(value, np.ndarray):
        if (here.shape, here.dtype) != (value.shape, value.dtype) or not here.flags.writeable:
            return value
        here[...] = value
    elif isinstance(here, dict) and isinstance(value, dict):
        items = {key: refill(here.get(key), item) for key, item in value.items()}
        here.clear()
        here.update(items)
    elif isinstance(here, list | deque) and isinstance(value, list | deque):
        items_ = [refill(old, new) for old, new in zip_longest(list(here)[: len(value)], value)]
        here.clear()
        here.extend(items_)
    elif isinstance(here, tuple) and isinstance(value, tuple) and hasattr(here, "_fields"):
        return type(here)(*value)
    elif type(here) is set and isinstance(value, set):
        here.clear()
        here.update(value)
    else:
        return fill_anew(value)
    return here


def fill_anew(value: Any) -> Any:
    """A value that is put where there was none of its kind."""
    if type(value) is list:
        return [refill(None, item) for item in value]
    if type(value) is deque:
        return deque((refill(None, item) for item in value), value.maxlen)
    if type(value) is tuple:
        return tuple(refill(None, item) for item in value)
    if isinstance(value, dict):
        for key in value:
            value[key] = refill(None, value[key])
    return value


def refill_class(here: Any, value: dict[str, Any]) -> Any:
    """A member of the enumeration that is there, or a tuple with its names."""
    if value[KIND] == "member" and isinstance(here, Enum):
        return type(here)[value["name"]]
    if value[KIND] == "named" and is_named(here) and list(here._fields) == value["names"]:
        return type(here)(*(refill(old, new) for old, new in zip(here, value["items"], strict=True)))
    raise LookupError(f"there is no class here for {value}")


def refill_tensor(here: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A tensor's numbers, in the one that is there if it is no part of a graph."""
    if (here.shape, here.dtype) != (value.shape, value.dtype) or here.grad_fn is not None:
        return value
    with torch.no_grad():
        return here.copy_(value)
