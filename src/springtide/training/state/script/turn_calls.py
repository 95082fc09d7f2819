"""What the loop over a step calls: whether one of its calls sets weights anew, as a learner's at the top of a turn."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from dis import Instruction
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from springtide.training.state.script.loop_code import ACCESS, CodeSpan, find_loop, read_code
from springtide.training.state.script.loop_variables import is_installed, list_frames
from springtide.training.state.script.loss_flow import DEEPEST

#: Methods and functions that put other weights in the place of what was there.
SETTING = {"load_state_dict", "vector_to_parameters"}
#: One that does so if what it is given is not computed from what was there: `t.copy_(0.9 * t + 0.1 * s)` is.
COPYING = "copy_"
#: Calls that compute nothing: copies of weights, and lists of them.
AS_IS = {"clone", "detach", "deepcopy", "to", "cpu", "copy_", "clear"}
AS_IS |= {"state_dict", "named_parameters", "parameters", "dict"}
#: Instructions that end a part of the code.
ENDING = ("STORE_", "POP_TOP", "POP_JUMP", "JUMP", "FOR_ITER", "RETURN", "RAISE")
VARIABLES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")
#: Those that keep it where it may be changed.
KEEPING = (*VARIABLES, "FOR_ITER", "RETURN")
CALLING = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")
LOADING = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")


@dataclass(frozen=True, slots=True)
class CodePiece:
    """Instructions up to where a value is stored, asked or thrown away, and whether they leave values as they are."""

    code: list[Instruction]
    leaves_be: bool


def sets_anew(container: str | None = None) -> bool:
    """Whether the loop over a step that is under way, or a function that it calls, sets weights as a whole.

    Or, of a list or a dict by its name, only stores copies of items in it, and computes nothing from these.
    """
    spans = list(list_spans())
    parts = [part for span in spans for part in list_parts(span)]
    copies = any(map(sets_data, parts)) if container is None else sets_items(parts, container)
    return copies or any(map(sets_weights, spans))


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
    """The code of the script's functions and methods whose names the loop mentions, and those that they mention."""
    seen: set[CodeType] = set()
    values = list(frame.f_locals.values())
    near = [(loop.code[loop.first : loop.last + 1], frame.f_globals)]
    for _ in range(DEEPEST):
        found = [one for code, scope in near for one in list_named(code, values, scope)]
        new = {one.__code__: one for one in found if one.__code__ not in seen}
        yield from new
        seen |= new.keys()
        near = [(read_code(code).code, one.__globals__) for code, one in new.items()]


def list_named(code: Iterable[Instruction], values: Iterable[Any], scope: dict[str, Any]) -> Iterator[FunctionType]:
    """The script's functions and methods, of the loop's variables and of a file's, whose names code mentions."""
    names = {one.argval for one in code if one.opname.startswith(LOADING)}
    for value in (*values, *(scope[name] for name in names if name in scope)):
        kind = type(value)
        if issubclass(kind, FunctionType) and value.__name__ in names:
            yield from list_own(value)
        elif not issubclass(kind, FunctionType | type) and not is_installed(find_file(kind)):
            for name in names:
                method = getattr(kind, name, None) if isinstance(name, str) else None
                yield from list_own(method)


def list_own(value: object) -> Iterator[FunctionType]:
    """A function, if it is the script's own."""
    value = value.__func__ if isinstance(value, MethodType) else value
    if isinstance(value, FunctionType) and not is_installed(value.__code__.co_filename):
        yield value


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


# Parts of code, each up to where something is stored, asked or thrown away.


def list_parts(span: CodeSpan) -> Iterator[CodePiece]:
    """The parts of code, and whether each leaves values as they are.

    One does not if it has an operator, a call that is not known, or a variable that another such part has stored.
    """
    computed: set[Any] = set()
    code: list[Instruction] = []
    for one in (each for index in span.inside for each in separate(span.code[index])):
        code.append(one)
        if one.opname.startswith(ENDING):
            part = CodePiece(code, leaves_be(code) and not computed.intersection(list_loaded(code)))
            if not part.leaves_be and one.opname.startswith(VARIABLES):
                computed.add(one.argval)
            yield part
            code = []


def separate(one: Instruction) -> Iterator[Instruction]:
    """An instruction, or the two that one of later Pythons is."""
    kinds = ACCESS.findall(one.opname)
    if len(kinds) == 2 and isinstance(one.argval, tuple):
        yield from (
            one._replace(opname=f"{kind}_FAST", argval=name) for kind, name in zip(kinds, one.argval, strict=True)
        )
    else:
        yield one


def leaves_be(code: list[Instruction]) -> bool:
    """Whether code only copies weights or asks for them."""
    known = sum(one.opname.startswith(LOADING) and one.argval in AS_IS for one in code)
    return known == count_calls(code) and not any(one.opname == "BINARY_OP" and one.argrepr != "[]" for one in code)


def count_calls(code: list[Instruction]) -> int:
    """How many calls there are."""
    return sum(one.opname in CALLING for one in code)


def list_loaded(code: Iterable[Instruction]) -> list[Any]:
    """What code loads, in its order."""
    return [one.argval for one in code if one.opname.startswith(LOADING)]


def sets_data(part: CodePiece) -> bool:
    """Whether a part of code gives a tensor the memory of a copy: `q.data = p.data.clone()`."""
    last = part.code[-1]
    return last.opname == "STORE_ATTR" and last.argval == "data" and part.leaves_be and count_calls(part.code) > 0


def sets_items(parts: Iterable[CodePiece], container: str) -> bool:
    """Whether all that is done with a list or a dict is to store copies in it, to ask it and to put them back."""
    about = [part for part in parts if container in list_loaded(part.code)]
    stores = [part for part in about if stores_in(part, container)]
    return bool(stores) and all(part.leaves_be and not part.code[-1].opname.startswith(KEEPING) for part in about)


def stores_in(part: CodePiece, container: str) -> bool:
    """Whether a part of code stores an item: behind the value it loads the container and the key."""
    loaded = [one.argval for one in part.code if one.opname.startswith("LOAD_")]
    return part.code[-1].opname == "STORE_SUBSCR" and loaded[-2:-1] == [container]
