"""What gradients depend on: the variables that flow into `loss.backward()`, found in the bytecode of a loop.

Values are followed on the stack, from variable to variable, through conditions (what is loaded under `if i > 50:`
depends on `i`) and through functions of the script's own, up to a depth. What is printed, logged, shown by a progress
bar or summed up for later flows nowhere.
"""

import dis
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType, FunctionType, MethodType
from typing import Any

import torch

from springtide.training.state.script.loop_code import ACCESS, ALWAYS_JUMPING, CodeSpan, find_loop, read_code
from springtide.training.state.script.loop_variables import MISSING, is_installed, is_own

#: In the names that a value is made of: that it is, or holds, the call of a backward.
BACKWARD = "<backward>"
#: Names of methods and functions that bring gradients, in torch and in what is built around it.
BRINGING = {"backward", "manual_backward"}
#: How deep functions of the script are looked into.
DEEPEST = 3
#: Instructions that take values from the stack and leave none there.
LEAVING_NONE = ("STORE_", "DELETE_", "POP_", "RETURN_", "RAISE_", "RERAISE", "JUMP_IF_", "END_", "PRINT_EXPR")
#: And those that put them into a container that is being made.
FILLING = ("LIST_APPEND", "LIST_EXTEND", "SET_ADD", "SET_UPDATE", "MAP_ADD", "DICT_UPDATE", "DICT_MERGE")
CALLING = ("PRECALL", "CALL", "CALL_KW")
CALL = "__call__"
LOADING_OF = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")

Names = frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Called:
    """A function of the script's own that a value is, and the object whose method it is, by its variable."""

    function: FunctionType
    owner: object = MISSING
    owner_name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A value on the stack: the variables that it is made of, and what it is, where that is known."""

    names: Names = frozenset()
    value: object = MISSING
    variable: str = ""
    called: Called | None = None


@dataclass
class Scope:
    """What names mean where code runs, and which functions led there."""

    variables: dict[str, Any]
    all_: dict[str, Any]
    above: tuple[object, ...] = ()

    def find(self, name: str) -> object:
        """The value of a variable."""
        return self.variables.get(name, self.all_.get(name, MISSING))


@dataclass
class Flow:
    """A walk through code that follows its values."""

    span: CodeSpan
    scope: Scope
    #: Whether what is returned counts as the loss, as in a function without a backward of its own.
    returning: bool = False
    #: The variables that a backward depends on, and those that each variable is made of.
    ends: set[str] = field(default_factory=set)
    sources: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: The variables on whose value it depends whether an instruction runs.
    conditions: dict[int, Names] = field(default_factory=dict)
    has_backward: bool = False

    def find_trained(self) -> Names:
        """The variables that gradients depend on."""
        states: dict[int, list[Slot]] = {}
        conditioned: dict[int, Names] = {}
        open_ = [(self.span.start, self.span.start - 1, self.begin())]
        while open_:
            index, came_from, stack = open_.pop()
            merged = merge(states.get(index), stack)
            if merged is None and conditioned[index] == self.conditions.get(index, frozenset()):
                continue
            states[index] = stack = states[index] if merged is None else merged
            conditioned[index] = self.conditions.get(index, frozenset())
            falls = index + 1
            for place in self.span.follow(index, came_from):
                open_.append((place, index, self.apply(index, list(stack), jump=place != falls)))
            if not any(True for _ in self.span.follow(index, came_from)):
                self.apply(index, list(stack), jump=False)
        return self.close()

    def begin(self) -> list[Slot]:
        """The stack where the walk begins: in a loop behind its FOR_ITER, with the iterator and the item."""
        return [Slot(), Slot()] if self.span.code[self.span.here].opname == "FOR_ITER" else []

    def close(self) -> Names:
        """What backwards depend on, on the way of whatever variables."""
        found: set[str] = set()
        open_ = set(self.ends)
        while open_:
            name = open_.pop()
            found.add(name)
            open_ |= self.sources.get(name, set()) - found
        return frozenset(found - {BACKWARD})

    def apply(self, index: int, stack: list[Slot], jump: bool) -> list[Slot]:
        """The stack after an instruction."""
        one = self.span.code[index]
        effect = dis.stack_effect(one.opcode, one.arg if one.opcode >= dis.HAVE_ARGUMENT else None, jump=jump)
        condition = self.conditions.get(index, frozenset())
        before = len(stack)
        name = one.opname
        if name == "COPY" and one.arg:
            return [*stack, stack[-one.arg]] if one.arg <= before else [*stack, Slot()]
        if name == "SWAP" and one.arg:
            if one.arg <= before:
                stack[-one.arg], stack[-1] = stack[-1], stack[-one.arg]
            return stack
        if kinds := ACCESS.findall(name):
            return self.access(index, kinds, stack, effect, condition)
        if name.startswith(("LOAD_", "PUSH_")) and name not in LOADING_OF:
            is_closure = name in ("LOAD_CLOSURE", "LOAD_CLASSDEREF")
            own = frozenset({str(one.argval)}) if is_closure else frozenset()
            return [*stack, *[Slot(own | condition)] * effect]
        keep = max(0, before + effect)
        if name.startswith(LEAVING_NONE):
            self.take(index, stack[keep:])
            return stack[:keep]
        if name in FILLING:
            place = -(one.arg or 1)
            if len(stack) + effect + place >= 0:
                below = stack[:keep]
                below[place] = Slot(join([below[place], *stack[keep:]]))
                return below
            return stack[:keep]
        # Python 3.11 has two instructions for a call, and the arguments go with the first.
        if name in CALLING and one.arg is not None and self.span.code[index - 1].opname != "PRECALL":
            stack = self.call(index, stack, one.arg)
        low = max(0, min(keep, before) - 1)
        if name == "BUILD_TUPLE" and one.arg and self.returning and is_returned(self.span, index):
            result = stack[-one.arg]  # of several values the first is the loss
        elif name == "BUILD_CONST_KEY_MAP" and one.arg:
            result = Slot(join(pick_losses(self.span.code[index - 1].argval, stack[before - 1 - one.arg : before - 1])))
        elif name in LOADING_OF:
            result = self.get_attribute(index, stack[-1] if stack else Slot())
        else:
            result = Slot(join(stack[low:]) | self.list_read(index))
        return [*stack[:low], *[result] * (keep - low)]

    def access(self, index: int, kinds: list[str], stack: list[Slot], effect: int, condition: Names) -> list[Slot]:
        """The stack after variables were read or written."""
        one = self.span.code[index]
        names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        before = len(stack)
        for kind, name in zip(kinds, names, strict=False):
            if kind == "STORE":
                self.store(str(name), stack.pop() if stack else Slot())
            elif kind == "LOAD":
                value = self.scope.find(str(name))
                called = find_function(value, str(name))
                stack.append(Slot(frozenset({str(name)}) | condition, value, str(name), called))
        while len(stack) < before + effect:  # the place for an object whose method it might be
            stack.append(stack[-1])
        return stack

    def store(self, name: str, slot: Slot) -> None:
        """A variable is made of a value."""
        self.sources[name] |= slot.names
        self.notice([slot])

    def take(self, index: int, slots: list[Slot]) -> None:
        """An instruction has used values up."""
        one = self.span.code[index]
        self.notice(slots)
        if one.opname.startswith("STORE_") and slots:
            names = [name for kind, name in self.span.accesses[index] if kind == "STORE"]
            if one.opname == "STORE_SUBSCR" and not names and len(slots) > 1 and slots[1].variable:
                names = [slots[1].variable]
            for name in names:
                self.sources[name] |= slots[0].names
        elif one.opname.startswith("RETURN_") and self.returning:
            self.ends |= join(slots)
        if one.opname.startswith(("POP_JUMP", "JUMP_IF_")):
            for place in self.list_conditional(index):
                self.conditions[place] = self.conditions.get(place, frozenset()) | join(slots)

    def notice(self, slots: Iterable[Slot]) -> None:
        """Values are used up: what a call of a backward had is what it depends on."""
        names = join(slots)
        if BACKWARD in names:
            self.has_backward = True
            self.ends |= names

    def list_conditional(self, index: int) -> Iterator[int]:
        """The instructions that run, or do not, by the jump at one: up to its target, and what is else."""
        one = self.span.code[index]
        target = self.span.places[one.argval]
        end = target if target > index else self.find_loop_end(target)
        last = self.span.code[end - 1] if end - 1 > index else None
        if last is not None and last.opname in ALWAYS_JUMPING:
            other = self.span.places[last.argval]
            # A loop over a step that is left is refused anyway.
            if other < end:
                end = self.find_loop_end(other)
            elif other <= self.span.last:
                end = other
        return iter(range(index + 1, end))

    def find_loop_end(self, first: int) -> int:
        """Behind the last jump back to the beginning of a loop."""
        code = self.span.code
        jumps = [
            index
            for index in range(first, self.span.last + 1)
            if code[index].argval == code[first].offset and "JUMP" in code[index].opname
        ]
        return max(jumps, default=self.span.last) + 1

    def list_read(self, index: int) -> set[str]:
        """The variables and their members that an instruction reads."""
        return {name for kind, name in self.span.accesses[index] if kind == "LOAD"}

    def get_attribute(self, index: int, owner: Slot) -> Slot:
        """An attribute of a value."""
        one = self.span.code[index]
        names = self.list_read(index)
        if one.argval in BRINGING:
            names.add(BACKWARD)
        method = find_method(owner.value, str(one.argval)) if is_object(owner.value) else None
        called = make_called(method, owner.value, owner.variable)
        return Slot(owner.names | names, called=called)

    def call(self, index: int, stack: list[Slot], count: int) -> list[Slot]:
        """The stack before a call of a function of the script's own, without the arguments that its loss has not."""
        code = self.span.code
        words: tuple[str, ...] = ()
        given = stack
        if code[index].opname == "CALL_KW":
            words, given = code[index - 1].argval, stack[:-1]
        elif code[index - 1].opname == "KW_NAMES":
            words = words_of(self.span, index - 1)
        if len(given) < count + 2:
            return stack
        called = find_called(given[-count - 2 : len(given) - count])
        if called is None or len(self.scope.above) >= DEEPEST or called.function.__code__ in self.scope.above:
            return stack
        trained, has_backward = find_trained_in(called, self.scope)
        arguments = given[len(given) - count :]
        places = list_places(called, count, words)
        kept = [
            slot if place is None or place in trained else Slot() for slot, place in zip(arguments, places, strict=True)
        ]
        own = next(iter(list_parameters(called.function)), "")
        members = {
            name.replace(own, called.owner_name, 1)
            for name in trained
            if called.owner_name and own and name.startswith(f"{own}.")
        }
        outer = list_outer(called.function, trained) if called.function.__globals__ is self.scope.all_ else set()
        extra = members | outer | ({BACKWARD} if has_backward else set())
        callee = Slot(frozenset(extra) | ({called.owner_name} if called.owner_name else frozenset()))
        rest = stack[len(given) :]
        return [*given[: -count - 2], callee, callee, *kept, *rest]


def is_returned(span: CodeSpan, index: int) -> bool:
    """Whether the value that an instruction makes is what a function returns."""
    return index < span.last and span.code[index + 1].opname.startswith("RETURN_")


def words_of(span: CodeSpan, index: int) -> tuple[str, ...]:
    """The names of arguments that a KW_NAMES brings."""
    argument = span.code[index].argval
    return argument if isinstance(argument, tuple) else ()


def merge(old: list[Slot] | None, new: list[Slot]) -> list[Slot] | None:
    """The values that may be on the stack by two ways; None if the second brings nothing new."""
    if old is None:
        return new
    pairs = list(zip(old, new, strict=False))
    if all(two.names <= one.names for one, two in pairs):
        return None
    return [Slot(one.names | two.names, one.value, one.variable, one.called) for one, two in pairs]


def join(slots: Iterable[Slot]) -> Names:
    """The variables that several values are made of."""
    return frozenset().union(*(slot.names for slot in slots))


def pick_losses(keys: Any, slots: list[Slot]) -> list[Slot]:
    """Of a dictionary's values those that are a loss by name, if any is."""
    if not isinstance(keys, tuple) or len(keys) != len(slots):
        return slots
    return [slot for key, slot in zip(keys, slots, strict=True) if "loss" in str(key)] or slots


def find_called(slots: list[Slot]) -> Called | None:
    """The function of the script that one of the values is."""
    return next((slot.called for slot in slots if slot.called is not None), None)


def find_function(value: object, name: str) -> Called | None:
    """What is called where a variable is: a function of the script's own, or an object of its own by its method."""
    if isinstance(value, MethodType):
        return make_called(value.__func__, value.__self__)
    return make_called(find_method(value, CALL), value, name) if is_object(value) else make_called(value)


def find_method(value: object, name: str) -> object:
    """A function of an object's class."""
    return getattr(type(value), name, None)


def make_called(function: object, owner: object = MISSING, owner_name: str = "") -> Called | None:
    """A function whose code is looked into: of the script's own files."""
    is_read = isinstance(function, FunctionType) and not is_installed(function.__code__.co_filename)
    return Called(function, owner, owner_name) if is_read else None  # type: ignore[arg-type]


def is_object(value: object) -> bool:
    """Whether a value is an object of the script's own classes whose code can be read; modules are looked at apart."""
    kind = type(value)
    return (
        value is not MISSING
        and kind.__module__ != "builtins"
        and not issubclass(kind, (type, torch.nn.Module))
        and is_own(kind)
    )


def list_parameters(function: FunctionType) -> list[str]:
    """The names of a function's arguments."""
    code = function.__code__
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def list_outer(function: FunctionType, names: Names) -> set[str]:
    """Those of a function's variables that are not its own."""
    code = function.__code__
    return {name for name in names if name.isidentifier() and name not in (*code.co_varnames, *code.co_cellvars)}


def list_places(called: Called, count: int, words: tuple[str, ...]) -> list[str | None]:
    """The parameter that each argument of a call is for; None where that is not known."""
    code = called.function.__code__
    names = list(code.co_varnames[: code.co_argcount])[1 if called.owner is not MISSING else 0 :]
    known = list_parameters(called.function)
    positions = [names[place] if place < len(names) else None for place in range(count - len(words))]
    return [*positions, *(word if word in known else None for word in words)]


def find_trained_in(called: Called, scope: Scope) -> tuple[Names, bool]:
    """The variables of a function that its loss or its backwards depend on, and whether it has any."""
    function = called.function
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    variables = {name: value for name, cell in cells if (value := read_cell(cell)) is not MISSING}
    own = list_parameters(function)[:1]
    if own and called.owner is not MISSING:
        variables[own[0]] = called.owner
    inner = Scope(variables, function.__globals__, (*scope.above, function.__code__))
    flow = Flow(read_code(function.__code__), inner)
    trained = flow.find_trained()
    if flow.has_backward:
        return trained, True
    return Flow(read_code(function.__code__), inner, returning=True).find_trained(), False


def read_cell(cell: Any) -> object:
    """What a variable of an outer function is."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


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


def find_owner(name: str) -> str:
    """The variable of a name, which may be that of a member of its value."""
    return name.partition(".")[0].partition("[")[0]


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
