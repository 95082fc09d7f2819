"""Values that a script carries from step to step in variables of its own, which a joining or resumed process has not.

`seen += 1` or `best = min(best, loss)`: a variable, or an attribute as `self.seen`, of a loop around the steps that is
read there before it is written, so that its value comes from an earlier step. What is written first in every step
(`loss`, `x`, a rate by `step.number`) is not carried. Found in the bytecode of the script's frames, once per place;
times of day are left out.
"""

import sys
import sysconfig
import time
import zlib
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import torch

from springtide.training.state.digests import is_plain
from springtide.training.state.divergence import number_plain, number_tensor
from springtide.training.state.script.loop_code import find_carried

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

#: Frames between the script and here, and of those that have started it.
OURS = ("springtide.", "runpy", "torch.")
#: Values by the text that Python writes for them, by the variable.
Carried = dict[str, str]
LONGEST = 80
#: Types whose values are written as Python does.
WRITTEN = (bool, int, float, complex, str, bytes, Decimal, Fraction)
#: Items of a container up to which it is known by what is in it, not by their number alone.
MOST_ITEMS = 1000
YEAR_S = 365 * 86_400.0
#: No value, which is not None.
MISSING = object()
#: Folders of packages that are installed, and those in them that are the script's own.
INSTALLED = ("site-packages", "dist-packages")
OWN: set[str] = set()
#: Packages that run the scripts of others, and ours.
FRAMEWORKS = {"springtide", "torch", "transformers", "accelerate", "trl", "lightning", "lightning_fabric"}
FRAMEWORKS |= {"pytorch_lightning", "composer", "ignite", "fastai", "ray", "peft", "IPython", "pytest", "_pytest"}
#: Objects of the script that a framework calls between steps, as callbacks: what they count is lost as well.
CALLED: list[object] = []


def read_carried() -> Carried:
    """The values that the loops of this process's script carry at this moment."""
    found: Carried = {}
    for frame in list_frames():
        where = "" if frame.f_code.co_name == "<module>" else f" of {frame.f_code.co_name}()"
        for name in sorted(find_carried(frame.f_code, frame.f_lasti)):
            value = find_value(frame, name)
            if text := write_plain(value) or write_type(value):
                found[name + where] = text
    for one in CALLED:
        texts = {f"{name} of {type(one).__name__}": write_plain(value) for name, value in vars(one).items()}
        found |= {name: text for name, text in texts.items() if text}
    return found


def watch_called(objects: Iterable[object]) -> None:
    """From now on, look at the plain attributes of these objects, too."""
    CALLED[:] = objects


def find_value(frame: FrameType, name: str) -> object:
    """The value of a variable of a frame, or of an attribute (`self.seen`) of an object of the script's own classes."""
    variable, _, attribute = name.partition(".")
    if not variable.isidentifier():
        return MISSING  # what Python made itself
    value = frame.f_locals.get(variable, frame.f_globals.get(variable, MISSING))  # `global best`
    if not attribute or value is MISSING:
        return value
    has_own = isinstance(value, SimpleNamespace | Namespace) or is_own(type(value))
    return getattr(value, "__dict__", {}).get(attribute, MISSING) if has_own else MISSING


def is_own(kind: type) -> bool:
    """Whether a class is of the script's own files."""
    module = sys.modules.get(kind.__module__)
    return not is_installed(getattr(module, "__file__", None) or "")


def find_lost(before: Mapping[str, str]) -> list[str]:
    """A phrase for each variable that is there and carried a value before that it has not now."""
    now = read_carried()
    return [
        f"{name} was {text} and is {now[name]}"
        for name, text in before.items()
        if name in now and not are_same(text, now[name])
    ]


def are_same(one: str, other: str) -> bool:
    """Whether two values are the same, in whatever words: 0 and 0.0 are."""
    try:
        return one == other or float(one) == float(other)
    except ValueError:
        return False


def tell_lost(run: "ElasticRun", variables: Mapping[str, str], lost: Sequence[str]) -> None:
    """Say which variables of the script had other values where this process goes on from, and what else was lost."""
    phrases = [*find_lost(variables), *lost] if run.is_main or run.settings.joining else []
    run.lost = phrases
    if phrases:
        run.channel.warn(
            f"process {run.name} goes on from step {run.position.step} without what the script counted until then: "
            f"{', '.join(phrases)}. A process that resumes or joins runs the lines before the loop and none of the "
            "steps before: keep such values in run.state, objects by run.keep, or take step.index, step.number"
        )


def write_plain(value: object) -> str:
    """A number, a text or None in Python's words, a few words for a tensor, an array, a module or a container.

    Nothing for all else, and for a time of this year.
    """
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is float and abs(value - time.time()) < YEAR_S:
        return ""
    if isinstance(value, torch.Tensor) and is_plain(value) and value.dim() == 0:
        return repr(value.item())  # as the number that it stands for: `best = 0` before the first step
    if isinstance(value, torch.Tensor):
        return f"tensor {tuple(value.shape)} #{int(number_tensor(value)):x}" if is_plain(value) else ""
    if isinstance(value, np.ndarray):
        return f"array {value.shape} #{zlib.crc32(value.tobytes()):x}" if value.dtype.kind in "biuf" else ""
    if isinstance(value, torch.nn.Module):
        return f"{type(value).__name__}(...)"
    if type(value) in (list, tuple, dict):
        return write_container(value)  # type: ignore[arg-type]
    return write_short(repr(value)) if value is None or type(value) in WRITTEN else ""


def write_short(text: str) -> str:
    """A text, of a long one the beginning and a number of the whole."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... #{zlib.crc32(text.encode()):x}"


def write_type(value: object) -> str:
    """The type of a value that cannot be written, which may have been made by now; not of times, functions and such."""
    kind = type(value)
    if value is MISSING or issubclass(kind, (type, ModuleType, FunctionType, BuiltinFunctionType, float)):
        return ""
    return "" if kind.__module__ in ("datetime", "time") or isinstance(value, torch.Tensor) else f"{kind.__name__}(...)"


def write_container(value: list[object] | tuple[object, ...] | dict[object, object]) -> str:
    """A few words for a container, by what is in it."""
    number = f" #{number_plain(value) % 2**64:x}" if 0 < len(value) <= MOST_ITEMS else ""
    return f"{type(value).__name__} of {len(value)}{number}"


def list_frames() -> Iterator[FrameType]:
    """The frames of the script's own files, innermost first: no installed package, none of ours."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_of_script(frame):
            yield frame
        frame = frame.f_back


def is_of_script(frame: FrameType) -> bool:
    """Whether a frame runs code of the script's own files."""
    is_ours = str(frame.f_globals.get("__name__", "")).startswith(OURS)
    return not is_ours and not is_installed(frame.f_code.co_filename)


@lru_cache
def is_installed(file: str) -> bool:
    """Whether a file belongs to Python or to a package that was installed, other than the script's own."""
    if any(file == one or file.startswith(f"{one}/") for one in OWN):
        return False
    library = sysconfig.get_paths()["stdlib"]
    return file.startswith((library, "<frozen")) or any(place in file for place in INSTALLED)


def own_caller() -> None:
    """Count the installed package that calls springtide as the script's own: `python -m mine.train`, from a wheel.

    Frameworks that might do so for a script are no script.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("springtide."):
        frame = frame.f_back
    file = "" if frame is None else frame.f_code.co_filename
    place = next((place for place in INSTALLED if f"/{place}/" in file), None)
    if place is None:
        return
    folder, _, rest = file.rpartition(f"/{place}/")
    top = rest.partition("/")[0]
    if top.removesuffix(".py") not in FRAMEWORKS:
        OWN.add(f"{folder}/{place}/{top}")
        is_installed.cache_clear()
