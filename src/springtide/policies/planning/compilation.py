"""How the planner's kernels become fast: compiled by numba where it is there, before a simulation or when it pays.

Loading the compiled form takes about 130 MB and a second. A simulation wants it from the start; a server with a few
dozen jobs decides in milliseconds without. So kernels are plain functions until they are compiled, and may be beside
decisions going on: both forms give the same floats, so it does not matter which of them a call meets. Knows nothing of
what kernels do.
"""

import inspect
from collections.abc import Callable, Mapping
from threading import Thread
from types import FunctionType, ModuleType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Mark a function that may be compiled; it may call other kernels of its module."""
    function.__dict__["is_kernel"] = True
    return function


def compile_kernels(module: ModuleType, samples: Mapping[Any, Any]) -> None:
    """Put the compiled form of every kernel in its place, for the types of samples, given by annotation.

    Nothing happens without numba, or if they are compiled already.
    """
    plain = {name: found for name, found in vars(module).items() if getattr(found, "is_kernel", False)}
    try:
        from numba import config, njit, typeof
    except ImportError:
        return
    if not plain or getattr(config, "DISABLE_JIT", False):
        return
    # Compiled kernels find each other in a copy of the module: whoever decides meanwhile goes on with the plain ones.
    scope = dict(vars(module))
    for name, function in plain.items():
        scope[name] = njit(cache=True)(FunctionType(function.__code__, scope, name))
    for name, function in plain.items():
        parameters = inspect.signature(function).parameters.values()
        types = [typeof(samples[parameter.annotation]) for parameter in parameters]  # type: ignore[no-untyped-call]
        scope[name].compile(tuple(types))
    vars(module).update({name: scope[name] for name in plain})


def start_compiling(module: ModuleType, samples: Mapping[Any, Any]) -> Thread:
    """Compile the kernels of a module in the background."""
    thread = Thread(target=compile_kernels, args=(module, samples), name="kernels", daemon=True)
    thread.start()
    return thread
