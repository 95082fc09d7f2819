"""Which variables of a loop over a step its gradients depend on, and which of these the loop carries or counts.

Asked of a frame that is at work in that loop. How values are followed through its code is in `loss_flow`.
"""

from functools import lru_cache
from types import CodeType, FrameType, FunctionType

from springtide.training.state.script.flow_values import Names, Scope, find_owner
from springtide.training.state.script.loop_code import find_loop, read_code
from springtide.training.state.script.loss_flow import Flow


def find_trained(frame: FrameType) -> Names:
    """The variables of a frame that gradients depend on, in the innermost loop at its place: over a step."""
    loop = find_loop(frame.f_code, frame.f_lasti, innermost=True)
    if loop is None or loop.code[loop.here].opname != "FOR_ITER":
        return frozenset()
    return Flow(loop, Scope(dict(frame.f_locals), frame.f_globals)).find_trained()


def find_counted(frame: FrameType, trained: Names) -> Names:
    """Those of these variables that the loop at a frame's place hands from one item to the next, sums included.

    Not the members of a variable that the loop sets: a worker's own state is such.
    """
    loop = find_loop(frame.f_code, frame.f_lasti, innermost=True)
    if loop is None:
        return frozenset()
    written = loop.list_written()
    own = {name for name in written & trained if find_owner(name) == name or find_owner(name) not in written}
    return frozenset(name for name in own if loop.goes_on_from(name, loop.start))


def find_kept(frame: FrameType, trained: Names) -> Names:
    """Those of these variables that are members of objects, which the loop at a frame's place does not set."""
    loop = find_loop(frame.f_code, frame.f_lasti, innermost=True)
    written = set() if loop is None else loop.list_written()
    return frozenset(name for name in trained - written if "." in name and find_owner(name) not in written)


def find_counted_around(frame: FrameType, trained: Names) -> Names:
    """Those of these variables that functions of the script count in, by `global` or `nonlocal`.

    Not those that the loop sets itself: that is anew in each turn, or `find_counted` has them.
    """
    loop = find_loop(frame.f_code, frame.f_lasti, innermost=True)
    written = set() if loop is None else loop.list_written()
    own = {name for name in trained - written if name.isidentifier()}
    made_here = [one for one in frame.f_code.co_consts if isinstance(one, CodeType)]
    around = [one.__code__ for one in frame.f_globals.values() if isinstance(one, FunctionType)]
    near = [one for one in around if one.co_filename == frame.f_code.co_filename]
    mentioning = [one for one in (*made_here, *near) if not own.isdisjoint((*one.co_names, *one.co_freevars))]
    return frozenset(name for one in mentioning for name in find_counted_outside(one) & own)


@lru_cache(maxsize=1024)
def find_counted_outside(code: CodeType) -> Names:
    """The variables around a function that it goes on from, and sets."""
    whole = read_code(code)
    outer = whole.list_written() - {*code.co_varnames, *code.co_cellvars}
    return frozenset(name for name in outer if name.isidentifier() and whole.goes_on_from(name, 0))


def find_place(frame: FrameType) -> str | None:
    """The variable that numbers the turns of the loop at a frame's place, if that is over enumerate(...)."""
    loop = find_loop(frame.f_code, frame.f_lasti, innermost=True)
    if loop is None or loop.code[loop.here].opname != "FOR_ITER":
        return None
    before = [one for one in loop.code[: loop.here] if not one.opname.startswith(("PRECALL", "EXTENDED"))]
    starts = [place for place, one in enumerate(before) if one.opname.startswith(("STORE_", "POP_", "JUMP", "RESUME"))]
    asked = before[max(starts, default=-1) + 1 :]
    is_counting = any(one.opname in ("LOAD_GLOBAL", "LOAD_NAME") and one.argval == "enumerate" for one in asked)
    stored = [
        name for index in (loop.here + 1, loop.here + 2) for kind, name in loop.accesses[index] if kind == "STORE"
    ]
    return stored[0] if is_counting and stored else None
