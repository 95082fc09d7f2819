"""How the planner's kernels become fast: compiled by numba where it is there, before a simulation or when it pays.

Loading the compiled form takes about 130 MB and a second, making it on a machine's first use half a minute. A long
simulation wants it from the start; a short one, or a server with a few dozen jobs, is done sooner without. So kernels
are plain functions until they are compiled, and may be beside decisions going on: both forms give the same floats, and
it does not matter which of them a call meets. Knows nothing of what kernels do.
"""

import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from threading import Thread
from time import perf_counter
from types import FunctionType, ModuleType
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

LOADED_S = 3.0  # by then all kernels are there, unless they must be made


def kernel(function: F) -> F:
    """Mark a function that may be compiled; it may call other kernels of its module."""
    function.__dict__["is_kernel"] = True
    return function


def compile_kernels(module: ModuleType, samples: Mapping[Any, Any]) -> None:
    """Put the compiled form of every kernel in its place, for the types of samples, given by annotation.

    Nothing happens without numba, or if they are compiled already.
    """
    plain = {name: found for name, found in vars(module).items() if getattr(found, "is_kernel", False)}
    if not plain or not is_numba_there():
        return
    from numba import config, njit, typeof

    if getattr(config, "DISABLE_JIT", False):
        return
    # Compiled kernels find each other in a copy of the module: whoever decides meanwhile goes on with the plain ones.
    scope, version = dict(vars(module)), digest_folder(module)
    for name, function in plain.items():
        made = FunctionType(function.__code__, scope, name)
        made.__qualname__ = f"{name}_{version}"
        scope[name] = njit(cache=True)(made)
    began_s, is_told = perf_counter(), False
    for name, function in plain.items():
        parameters = inspect.signature(function).parameters.values()
        types = [typeof(samples[parameter.annotation]) for parameter in parameters]  # type: ignore[no-untyped-call]
        scope[name].compile(tuple(types))
        if not is_told and perf_counter() - began_s > LOADED_S:
            is_told = True
            logger.warning("compiling the planner: once on this machine, for about half a minute")
    vars(module).update({name: scope[name] for name in plain})


def digest_folder(module: ModuleType) -> str:
    """What the modules beside a module say, in a few letters, for the names under which compiled kernels are kept.

    numba looks at the file of a kernel only. What it calls or reads in another may have changed: it would be kept as it
    was compiled, and decide otherwise than the plain form.
    """
    files = sorted(Path(inspect.getfile(module)).parent.glob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def is_numba_there() -> bool:
    """Whether numba can be imported, which this does."""
    try:
        import numba  # noqa: F401
    except BaseException as error:
        # What an import that ended half-way has left behind makes every later one of this process fail: begin anew.
        for name in [name for name in sys.modules if name.partition(".")[0] == "numba"]:
            del sys.modules[name]
        if isinstance(error, ModuleNotFoundError) and error.name == "numba":
            return False
        raise
    return True


def start_compiling(module: ModuleType, samples: Mapping[Any, Any]) -> Thread:
    """Compile the kernels of a module in the background; if that fails, the plain ones go on."""

    def compile_or_tell() -> None:
        try:
            compile_kernels(module, samples)
        except Exception:
            logger.warning("the planner could not be compiled and goes on uncompiled, only slower", exc_info=True)

    thread = Thread(target=compile_or_tell, name="kernels", daemon=True)
    thread.start()
    return thread
