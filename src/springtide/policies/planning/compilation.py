"""How the planner's kernels become fast: compiled at once where numba is there, or later, when it pays.

Loading the compiled form takes about 130 MB and a second. A simulation wants it from the start; a server with a few
dozen jobs decides in milliseconds without. `postpone` (before the kernels are imported) leaves them as written, and
`Compilation` brings the compiled form in afterwards, beside the decisions going on: both give the same floats, so it
does not matter which call is the first to meet it. Knows nothing of what kernels do.
"""

import inspect
import threading
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_postponed = False
_waiting: dict[str, list[str]] = {}  # names of uncompiled kernels by module


def postpone() -> None:
    """Leave kernels that are imported from now on as they are written."""
    global _postponed
    _postponed = True


if TYPE_CHECKING:  # numba ships no types; to the checker a compiled function is the function

    def compiled(function: F) -> F: ...

else:

    def compiled(function):
        """A kernel: compiled, unless that is postponed or numba is not there (slower, the same floats)."""
        if _postponed:
            _waiting.setdefault(function.__module__, []).append(function.__name__)
            return function
        try:
            from numba import njit
        except ImportError:
            return function
        return njit(cache=True)(function)


def compile_all(module: ModuleType, samples: Mapping[Any, Any]) -> None:
    """Compile every kernel of a module for the types of samples, given by annotation; nothing where there is none."""
    for kernel in list(vars(module).values()):
        if hasattr(kernel, "py_func"):
            parameters = inspect.signature(kernel.py_func).parameters.values()
            kernel.compile(tuple(_type_of(samples[parameter.annotation]) for parameter in parameters))


def _type_of(value: Any) -> Any:
    """The compiler's type of an argument."""
    from numba import typeof

    return typeof(value)  # type: ignore[no-untyped-call]


class Compilation:
    """The compiled form of a module whose kernels were postponed, on its way. Started at most once."""

    def __init__(self, module: ModuleType, samples: Mapping[Any, Any]) -> None:
        self.module = module
        self.samples = samples  # a value for each annotation, by which argument types are told
        self.names = _waiting.pop(module.__name__, [])
        self.thread: threading.Thread | None = None

    def start(self) -> bool:
        """Compile in the background; returns whether this call began it."""
        if self.thread is not None or not self.names:
            return False
        self.thread = threading.Thread(target=self.run, name="kernels", daemon=True)
        self.thread.start()
        return True

    def run(self) -> None:
        """Compile a twin of the module for the usual types, then let callers meet its kernels."""
        twin = self.make_twin()
        if twin is None:
            return
        compile_all(twin, self.samples)
        for name in self.names:
            setattr(self.module, name, getattr(twin, name))

    def make_twin(self) -> ModuleType | None:
        """The module once more, with kernels to compile; None without numba."""
        global _postponed
        spec = self.module.__spec__
        assert spec is not None and spec.loader is not None, "it was imported from a file"
        twin = module_from_spec(spec)
        _postponed = False
        try:
            import numba  # noqa: F401

            spec.loader.exec_module(twin)
        except ImportError:
            return None
        finally:
            _postponed = True
        return twin
