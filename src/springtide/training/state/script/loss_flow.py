"""What gradients depend on: the variables that flow into `loss.backward()`, found in the bytecode of a loop.

A `Flow` walks the code with a stack of `Slot`s in the place of values: each says of what variables its value is made.
What is stored, and what a backward is called on, goes to `VariableSources`, which has the answer in the end. What is
loaded under `if i > 50:` depends on `i`, and calls of the script's own functions are walked in the same way, up to a
depth. What is printed, logged, shown by a progress bar or summed up for later flows nowhere.
"""

import dis
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, ModuleType
from typing import Any

import torch

from springtide.training.state.script.class_code import find_read_in_use, list_codes, list_set
from springtide.training.state.script.flow_values import (
    Called,
    Names,
    Scope,
    Slot,
    Trained,
    find_called,
    find_function,
    find_method,
    find_owner,
    is_object,
    join,
    list_items,
    list_outer,
    list_parameters,
    list_places,
    make_called,
    merge,
    read_cell,
)
from springtide.training.state.script.loop_code import ACCESS, ALWAYS_JUMPING, RETURNING, CodeSpan, read_code
from springtide.training.state.script.loop_variables import MISSING, is_own
from springtide.training.state.script.variable_sources import VariableSources

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
#: Methods of containers that put their arguments into them; torch's end with an underscore.
CHANGING = {"append", "appendleft", "extend", "add", "insert", "update", "setdefault", "__setitem__"}
LOADING_OF = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")


@dataclass
class Flow:
    """A walk through code that follows its values."""

    span: CodeSpan
    scope: Scope
    #: The instruction that is at work.
    at: int = 0
    #: The variables on whose value it depends whether an instruction runs.
    conditions: dict[int, Names] = field(default_factory=dict)
    has_backward: bool = False

    def __post_init__(self) -> None:
        self.sources = VariableSources(self.span)

    def find_trained(self) -> Names:
        """The variables that the gradients of a loop depend on."""
        self.walk()
        return self.sources.find_all() - {BACKWARD}

    def find_given(self) -> Trained:
        """The variables that a function's backwards depend on, or what it returns if it has none."""
        self.walk()
        if self.has_backward:
            return Trained(self.sources.find_all() - {BACKWARD}, has_backward=True)
        self.sources.end_with_returned()
        return Trained(self.sources.find_all(), items=self.sources.find_items())

    def walk(self) -> None:
        """Go every way through the code."""
        states: dict[tuple[int, bool], list[Slot]] = {}
        conditioned: dict[tuple[int, bool], Names] = {}
        open_ = [(self.span.start, self.span.start - 1, self.begin())]
        while open_:
            index, came_from, stack = open_.pop()
            # A loop is left by its beginning, to which a turn of it has gone back.
            key = index, self.span.code[index].opname == "FOR_ITER" and came_from > index
            merged = merge(states.get(key), stack)
            if merged is None and conditioned[key] == self.conditions.get(index, frozenset()):
                continue
            states[key] = stack = states[key] if merged is None else merged
            conditioned[key] = self.conditions.get(index, frozenset())
            falls = index + 1
            for place in self.span.follow(index, came_from):
                open_.append((place, index, self.apply(index, list(stack), jump=place != falls)))
            if not any(True for _ in self.span.follow(index, came_from)):
                self.apply(index, list(stack), jump=False)

    def begin(self) -> list[Slot]:
        """The stack where the walk begins: in a loop behind its FOR_ITER, with the iterator and the item."""
        return [Slot(), Slot()] if self.span.code[self.span.here].opname == "FOR_ITER" else []

    def apply(self, index: int, stack: list[Slot], jump: bool) -> list[Slot]:
        """The stack after an instruction."""
        one = self.span.code[index]
        self.at = index
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
            value = one.argval if name == "LOAD_CONST" else MISSING
            return [*stack, *[Slot(own | condition, value)] * effect]
        keep = max(0, before + effect)
        if name.startswith(LEAVING_NONE):
            self.take(index, stack[keep:])
            return stack[:keep]
        if name == "FOR_ITER" and stack:
            self.depend(range(index + 1, self.span.places[one.argval]), stack[-1:])
            return [*stack, *[Slot(stack[-1].names)] * effect] if effect > 0 else stack[:keep]
        if name in FILLING:
            return self.fill(index, stack, keep)
        if name == "UNPACK_SEQUENCE" and one.arg and stack:
            return [*stack[:-1], *self.unpack(stack[-1], one.arg)]
        # Python 3.11 has two instructions for a call, and the arguments go with the first.
        if name in CALLING and one.arg is not None and self.span.code[index - 1].opname != "PRECALL":
            stack = self.call(index, stack, one.arg)
        low = max(0, min(keep, before) - 1)
        if name in CALLING:
            self.change(stack[low:])
        return [*stack[:low], *[self.make(index, stack, low)] * (keep - low)]

    def make(self, index: int, stack: list[Slot], low: int) -> Slot:
        """The value that an instruction makes of those on the stack from a place on."""
        one = self.span.code[index]
        name, names = one.opname, join(stack[low:]) | self.list_read(index)
        if name in LOADING_OF:
            return self.get_attribute(index, stack[-1] if stack else Slot())
        if name in ("CALL", "CALL_KW"):
            return Slot(names, items=next((slot.gives for slot in stack[low:] if slot.gives), None))
        if name == "BINARY_SUBSCR" and len(stack) > 1:
            return self.get_item(index, *stack[-2:])
        if name == "MAKE_FUNCTION":
            return Slot(names | list_loaded(self.span.code[index - 1].argval))
        if name == "BUILD_TUPLE" and one.arg and len(stack) >= one.arg:
            return Slot(names, items={place: slot.names for place, slot in enumerate(stack[-one.arg :])})
        if name == "BUILD_MAP" and len(stack) >= 2 * (one.arg or 0):
            return Slot(names, items=list_items(stack[len(stack) - 2 * (one.arg or 0) :]))
        if name == "BUILD_CONST_KEY_MAP" and one.arg and len(stack) > one.arg:
            values = [slot.names for slot in stack[-one.arg - 1 : -1]]
            return Slot(names, items=dict(zip(self.span.code[index - 1].argval, values, strict=True)))
        return Slot(names)

    def fill(self, index: int, stack: list[Slot], keep: int) -> list[Slot]:
        """The stack after values were put into a container that is being made."""
        place = -(self.span.code[index].arg or 1)
        below, rest = stack[:keep], stack[keep:]
        if keep + place < 0:
            return below
        old, new = below[place], rest[-1] if rest else Slot()
        has_items = self.span.code[index].opname.startswith("DICT_") and old.items is not None and new.items is not None
        items = {**(old.items or {}), **(new.items or {})} if has_items else None
        below[place] = Slot(join([old, *rest]), items=items)
        return below

    def unpack(self, slot: Slot, count: int) -> list[Slot]:
        """The values of a tuple, the first on top."""
        if slot.items is not None and list(slot.items) == list(range(count)):
            return [Slot(slot.items[place]) for place in reversed(range(count))]
        names = [f"{slot.variable}[{place}]" for place in reversed(range(count))]
        if slot.variable and all(name in self.sources.made_of for name in names):
            return [Slot(slot.names - {slot.variable} | {name}) for name in names]
        return [Slot(slot.names)] * count

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
        if slot.items is None:
            self.sources.add(name, slot.names, self.at)
        else:
            self.sources.made.add(name)
        for key, names in (slot.items or {}).items():
            self.sources.add(f"{name}[{key!r}]", names, self.at)
        self.notice([slot])

    def flow_into(self, name: str, names: Names) -> None:
        """A variable, or a member of one, is changed by what is made of others.

        So is a tensor of which it is a part, and a module that reads the attribute where it is called.
        """
        self.sources.add(name, names, self.at)
        root = find_owner(name)
        kind: Any = type(self.scope.find(root))
        attribute = name.removeprefix(f"{root}.").partition(".")[0].partition("[")[0]
        is_read = issubclass(kind, torch.nn.Module) and attribute in find_read_in_use(kind)
        if root != name and (issubclass(kind, torch.Tensor) or is_read):
            self.sources.add(root, names, self.at)

    def change(self, slots: list[Slot]) -> None:
        """A call changes the value of a variable by its arguments."""
        for slot in slots:
            if slot.changes:
                self.flow_into(slot.changes, join(slots))

    def take(self, index: int, slots: list[Slot]) -> None:
        """An instruction has used values up."""
        one = self.span.code[index]
        self.notice(slots)
        if one.opname.startswith("STORE_") and slots:
            names = [name for kind, name in self.span.accesses[index] if kind == "STORE"]
            if one.opname in ("STORE_SUBSCR", "STORE_SLICE", "STORE_ATTR") and not names and len(slots) > 1:
                names = [slots[1].variable] if slots[1].variable else []
            for name in names:
                self.flow_into(name, join([slots[0], *slots[2:]]))
        elif one.opname in RETURNING:  # one of a constant, since Python 3.12, takes nothing from the stack
            constant = Slot(self.conditions.get(index, frozenset()), one.argval)
            self.sources.returns[index] = slots[0] if slots else constant
        if one.opname.startswith(("POP_JUMP", "JUMP_IF_")):
            self.depend(self.list_conditional(index), slots)

    def depend(self, places: Iterable[int], slots: list[Slot]) -> None:
        """Whether instructions run, or how often, depends on values."""
        for place in places:
            self.conditions[place] = self.conditions.get(place, frozenset()) | join(slots)

    def notice(self, slots: Iterable[Slot]) -> None:
        """Values are used up: what a call of a backward had is what it depends on."""
        names = join(slots)
        if BACKWARD in names:
            self.has_backward = True
            self.sources.end(names, self.at)

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
        name = str(self.span.code[index].argval)
        names = self.list_read(index)
        variable = next(iter(names), owner.variable)
        if name in BRINGING:
            names.add(BACKWARD)
        if issubclass(type(owner.value), ModuleType):
            value = vars(owner.value).get(name, MISSING)
            return Slot(owner.names | names, value, variable, find_function(value, variable))
        method = find_method(owner.value, name) if is_object(owner.value) else None
        if isinstance(inspect.getattr_static(type(owner.value), name, None), staticmethod):
            return Slot(owner.names | names, method, variable, make_called(method))  # is not given the object
        if isinstance(method, property):
            return Slot(owner.names | names | self.find_property(method, owner), variable=variable)
        called = make_called(method, owner.value, owner.variable)
        if is_changing(owner.value, name) and (called is None or issubclass(type(owner.value), torch.nn.Module)):
            return Slot(owner.names | names, variable=variable, changes=owner.variable)
        return Slot(owner.names | names, variable=variable, called=called)

    def find_property(self, member: property, owner: Slot) -> Names:
        """What a property of an object of the script's own depends on."""
        getter = make_called(member.fget, owner.value, owner.variable)
        trained = self.look_into(getter)
        return frozenset() if getter is None or trained is None else self.list_reached(getter, trained.names)

    def get_item(self, index: int, owner: Slot, key: Slot) -> Slot:
        """An item of a value: by a constant it has names of its own."""
        names = self.list_read(index)
        if owner.items is not None and isinstance(key.value, str | int) and key.value in owner.items:
            return Slot(owner.items[key.value])
        if not names:
            return Slot(owner.names | key.names, variable=owner.variable)
        return Slot((owner.names - {owner.variable}) | key.names | names, variable=next(iter(names)))

    def call(self, index: int, stack: list[Slot], count: int) -> list[Slot]:
        """The stack before a call of a function of the script's own, without the arguments that its loss has not."""
        code = self.span.code
        words: tuple[str, ...] = ()
        given = stack
        if code[index].opname == "CALL_KW":
            words, given = code[index - 1].argval, stack[:-1]
        elif code[index - 1].opname == "KW_NAMES":
            words = code[index - 1].argval
        if len(given) < count + 2:
            return stack
        before, callees = given[: -count - 2], given[-count - 2 : len(given) - count]
        arguments, rest = given[len(given) - count :], stack[len(given) :]
        if len(words) == count and any(slot.variable == "dict" for slot in callees):
            made = Slot(gives={word: slot.names for word, slot in zip(words, arguments, strict=True)})
            return [*before, made, made, *arguments, *rest]
        called = find_called(callees)
        trained = self.look_into(called)
        if called is None or trained is None:
            return stack
        places = list_places(called, count, words)

        condition = self.conditions.get(index, frozenset())

        def keep(names: Names) -> list[Slot]:
            kept = (keep_trained(slot, place, names) for slot, place in zip(arguments, places, strict=True))
            return [Slot(self.list_reached(called, names) | condition), *kept]

        gives = {key: join(keep(names)) for key, names in trained.items.items()}
        callee, *kept = keep(trained.names)
        callee = Slot(callee.names | ({BACKWARD} if trained.has_backward else set()), gives=gives)
        return [*before, callee, callee, *kept, *rest]

    def look_into(self, called: Called | None) -> Trained | None:
        """What a function of the script's own depends on; None where it is not looked into."""
        if called is None or len(self.scope.above) >= DEEPEST or called.function.__code__ in self.scope.above:
            return None
        return find_trained_in(called, self.scope)

    def list_reached(self, called: Called, names: Names) -> Names:
        """What variables of a function are here: its owner, members of that, and what is around the function."""
        own = next(iter(list_parameters(called.function)), "")
        owner = called.owner_name
        members = {owner + name.removeprefix(own) for name in names if owner and own and name.startswith(f"{own}.")}
        is_near = called.function.__globals__ is self.scope.all_
        around = (
            {name for name in list_outer(called, names) if self.is_same(called, find_owner(name))} if is_near else set()
        )
        return frozenset(members | ({owner} if owner else set())) | around

    def is_same(self, called: Called, name: str) -> bool:
        """Whether a variable around a function is the one of that name here, not a local one that hides it."""
        is_closed_over = name in called.function.__code__.co_freevars
        return is_closed_over or self.scope.find(name) is self.scope.all_.get(name, MISSING)


def keep_trained(slot: Slot, parameter: str | None, trained: Names) -> Slot:
    """Of an argument what a function's loss depends on: all, nothing, or some of its items by a constant."""
    if parameter is None or parameter in trained:
        return slot
    items = [name.removeprefix(parameter) for name in trained if name.startswith(f"{parameter}[")]
    if items and not slot.variable:
        return slot
    rest = slot.names - {slot.variable} if items else frozenset()
    return Slot(rest | {f"{slot.variable}{item}" for item in items})


def is_changing(value: object, name: str) -> bool:
    """Whether a method changes its owner by what it is given: a list's, a tensor's in place, an own module's setter."""
    kind: Any = type(value)
    if name in CHANGING or (name.endswith("_") and not name.startswith("_")):
        return True
    if not issubclass(kind, torch.nn.Module):
        return False
    codes = [code for one in kind.__mro__ if is_own(one) for code in list_codes(one) if code.co_name == name]
    return any(attribute in find_read_in_use(kind) for code in codes for attribute in list_set(code))


def list_loaded(code: object) -> Names:
    """What a comprehension or a lambda reads of what is around it at the top of a file, and whether it has a backward.

    In a function that is in a closure.
    """
    if not isinstance(code, CodeType) or not code.co_name.startswith("<"):
        return frozenset()
    loaded = {str(one.argval) for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = frozenset().union(*(list_loaded(one) for one in code.co_consts))
    return inner | loaded | ({BACKWARD} if BRINGING & set(code.co_names) else set())


def find_trained_in(called: Called, scope: Scope) -> Trained:
    """What a function's loss or its backwards depend on; found once."""
    key = (called.function, id(called.owner), len(scope.above))
    if key not in scope.known:
        scope.known[key] = follow_function(called, scope)
    return scope.known[key]


def follow_function(called: Called, scope: Scope) -> Trained:
    """The same, anew."""
    function = called.function
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    variables = {name: value for name, cell in cells if (value := read_cell(cell)) is not MISSING}
    own = list_parameters(function)[:1]
    if own and called.owner is not MISSING:
        variables[own[0]] = called.owner
    inner = Scope(variables, function.__globals__, (*scope.above, function.__code__), scope.known)
    return Flow(read_code(function.__code__), inner).find_given()
