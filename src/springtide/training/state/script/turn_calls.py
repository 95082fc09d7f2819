"""What the loop over a step calls: whether one of its calls sets weights anew, as a learner's at the top of a turn."""

import sys
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, MethodType

from springtide.training.state.script.loop_code import CodeSpan, find_loop, read_code
from springtide.training.state.script.loop_variables import is_installed, list_frames

#: Methods and functions that put other weights in the place of what was there.
SETTING = {"load_state_dict", "vector_to_parameters"}
#: One that does so if what it is given is not computed from what was there: `t.copy_(0.9 * t + 0.1 * s)` is.
COPYING = "copy_"
LOADING = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")


def sets_anew() -> bool:
    """Whether the loop over a step that is under way, or a function that it calls, sets weights as a whole."""
    return any(map(sets_weights, list_spans()))


def list_spans() -> Iterator[CodeSpan]:
    """The code of the loop over a step, and of functions of the script that are called there."""
    for frame in list_frames():
        loop = find_loop(frame.f_code, frame.f_lasti, innermost=True)
        if loop is None:
            continue
        yield loop
        yield from map(read_code, list_called(frame, loop))
        return


def list_called(frame: FrameType, loop: CodeSpan) -> Iterator[CodeType]:
    """The code of the script's functions and methods whose names the loop mentions."""
    names = {one.argval for one in loop.code[loop.first : loop.last + 1] if one.opname.startswith(LOADING)}
    values = [*frame.f_locals.values(), *(frame.f_globals[name] for name in names if name in frame.f_globals)]
    for value in values:
        kind = type(value)
        if issubclass(kind, FunctionType) and value.__name__ in names:
            yield from list_own(value)
        elif not issubclass(kind, FunctionType | type) and not is_installed(find_file(kind)):
            for name in names:
                method = getattr(kind, name, None) if isinstance(name, str) else None
                yield from list_own(method)


def list_own(value: object) -> Iterator[CodeType]:
    """The code of a function of the script."""
    value = value.__func__ if isinstance(value, MethodType) else value
    if isinstance(value, FunctionType) and not is_installed(value.__code__.co_filename):
        yield value.__code__


def find_file(kind: type) -> str:
    """The file of a class."""
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or ""


def sets_weights(span: CodeSpan) -> bool:
    """Whether code sets weights as a whole."""
    code = [span.code[index] for index in span.inside]
    for place, one in enumerate(code):
        if one.argval in SETTING and one.opname.startswith(LOADING):
            return True
        if one.argval == COPYING and one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            rest = code[place + 1 :]
            end = next((n for n, each in enumerate(rest) if each.opname.startswith("POP_TOP")), len(rest))
            if not any(each.opname == "BINARY_OP" for each in rest[:end]):
                return True
    return False
